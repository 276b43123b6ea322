/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stands in for NVIDIA's driver: kernels are compiled by cc, and run on this
 * machine. It is as late as it may be: what is asked of a stream is done when somebody waits for
 * the stream. A call in no context is an error; after CUDA_WAITS waits, if that is set, the device
 * is gone, and after CUDA_ALLOCATIONS its memory is used up.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	/* Of a kernel that stays: a block for each of the multiprocessors. */
	GROUPS = 2,
	/* Kernels that stay at once. */
	SEATS = 4,
	OK = 0,
	OUT_OF_MEMORY = 2,
	INVALID_CONTEXT = 201,
	NOT_FOUND = 500,
	NOT_READY = 600,
	LAUNCH_FAILED = 719
};

typedef uint64_t address;
typedef void (*kernel)(address, address, address, address, address, address, address, address,
		       address, address, address, address, address);

struct function {
	kernel run;
	/* It runs beside the host, each group in a thread. */
	int stays;
	int parameters;
	/* A bit for each parameter that is a number, not an address. */
	unsigned numbers;
};

/* When a stream came by, once it has. */
struct event {
	uint64_t ns;
	int recorded;
	/* Streams that are to come by, and whether nobody wants to know any more. */
	int awaited, forgotten;
};

struct work {
	struct work *next;
	/* A launch, an event, or a copy. */
	struct function *function;
	struct event *event;
	uint32_t items;
	address values[13];
	void *to;
	const void *from;
	size_t bytes;
};

struct stream {
	struct work *first, **last;
	/* What is asked is recorded. */
	int recording;
	/* Groups of a kernel that stays. */
	pthread_t groups[GROUPS];
	int started, ended;
};

static __thread void *current;
static int context;
static void *module;

#define IN_CONTEXT()                                                                               \
	do {                                                                                       \
		if (current != &context)                                                           \
			return INVALID_CONTEXT;                                                    \
	} while (0)

static size_t memory(void)
{
	const char *bytes = getenv("CUDA_MEMORY");

	return bytes ? strtoull(bytes, NULL, 10) : (size_t)1 << 32;
}

int cuInit(unsigned flags)
{
	return OK;
}
int cuDriverGetVersion(int *version)
{
	*version = 12020;
	return OK;
}
int cuDeviceGetCount(int *count)
{
	*count = 1;
	return OK;
}
int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal ? 101 : OK;
}
int cuDeviceGetName(char *name, int room, int device)
{
	snprintf(name, room, "stand-in");
	return OK;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	*bytes = memory();
	return OK;
}
int cuDeviceGetAttribute(int *value, int what, int device)
{
	*value = what == 75 ? 9 : what == 16 ? 2 : 0;
	return OK;
}
int cuDevicePrimaryCtxRetain(void **handle, int device)
{
	*handle = &context;
	return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device)
{
	return OK;
}
int cuCtxSetCurrent(void *handle)
{
	current = handle;
	return OK;
}

int cuGetErrorName(int error, const char **name)
{
	*name = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OF_THE_STAND_IN";
	return OK;
}

int cuMemAlloc_v2(address *at, size_t bytes)
{
	static int allocations;
	const char *most = getenv("CUDA_ALLOCATIONS");

	IN_CONTEXT();
	if (most && __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED) > atoi(most))
		return OUT_OF_MEMORY;
	*at = (address)malloc(bytes);
	return *at ? OK : OUT_OF_MEMORY;
}

int cuMemFree_v2(address at)
{
	IN_CONTEXT();
	free((void *)at);
	return OK;
}
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
	return cuMemAlloc_v2((address *)at, bytes);
}
int cuMemFreeHost(void *at)
{
	return cuMemFree_v2((address)at);
}

int cuMemHostGetDevicePointer_v2(address *to, void *at, unsigned flags)
{
	IN_CONTEXT();
	*to = (address)at;
	return OK;
}

int cuStreamCreate(struct stream **stream, unsigned flags)
{
	IN_CONTEXT();
	*stream = calloc(1, sizeof(**stream));
	(*stream)->last = &(*stream)->first;
	return OK;
}

int cuStreamDestroy_v2(struct stream *stream)
{
	IN_CONTEXT();
	free(stream);
	return OK;
}

static struct work *add(struct stream *stream)
{
	struct work *work = calloc(1, sizeof(*work));

	*stream->last = work;
	stream->last = &work->next;
	return work;
}

static int copy(struct stream *stream, void *to, const void *from, size_t bytes)
{
	struct work *work;

	IN_CONTEXT();
	work = add(stream);
	work->to = to;
	work->from = from;
	work->bytes = bytes;
	return OK;
}

int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, struct stream *stream)
{
	return copy(stream, (void *)to, from, bytes);
}

int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, struct stream *stream)
{
	return copy(stream, (void *)to, (void *)from, bytes);
}

int cuEventCreate(struct event **event, unsigned flags)
{
	IN_CONTEXT();
	*event = calloc(1, sizeof(**event));
	return flags ? NOT_FOUND : OK;
}

int cuEventDestroy_v2(struct event *event)
{
	IN_CONTEXT();
	event->forgotten = 1;
	if (!event->awaited)
		free(event);
	return OK;
}

int cuEventRecord(struct event *event, struct stream *stream)
{
	IN_CONTEXT();
	event->recorded = 0;
	event->awaited++;
	add(stream)->event = event;
	return OK;
}

static void record(struct event *event)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	event->ns = now.tv_sec * 1000000000ULL + now.tv_nsec;
	event->recorded = 1;
	if (!--event->awaited && event->forgotten)
		free(event);
}

int cuEventElapsedTime(float *ms, struct event *from, struct event *to)
{
	IN_CONTEXT();
	if (!from->recorded || !to->recorded)
		return NOT_READY;
	*ms = (to->ns - from->ns) / 1e6;
	return OK;
}

int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, struct stream *stream)
{
	return copy(stream, to, (void *)from, bytes);
}

static void run(struct work *work, uint32_t item)
{
	address *v = work->values;

	/* Of this thread. */
	*(uint32_t *)dlsym(module, "item") = item;
	work->function->run(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10],
			    v[11], v[12]);
}

/* One thread at a time. */
static void launch(struct work *work)
{
	static int busy;

	while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
		usleep(10);
	for (uint32_t i = 0; i < work->items; i++)
		run(work, i);
	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

#include "stand.h"

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct function *function, int size,
						size_t memory)
{
	IN_CONTEXT();
	*blocks = SEATS;
	return OK;
}

int cuStreamQuery(struct stream *stream)
{
	IN_CONTEXT();
	return __atomic_load_n(&stream->ended, __ATOMIC_ACQUIRE) < stream->started ? NOT_READY : OK;
}

int cuStreamBeginCapture_v2(struct stream *stream, int mode)
{
	IN_CONTEXT();
	if (stream->recording || stream->first)
		return NOT_FOUND;
	stream->recording = 1;
	return OK;
}

int cuStreamEndCapture(struct stream *stream, struct work **graph)
{
	IN_CONTEXT();
	if (!stream->recording)
		return NOT_FOUND;
	stream->recording = 0;
	*graph = stream->first;
	stream->first = NULL;
	stream->last = &stream->first;
	return OK;
}

/* Of one work after the other, as often as wanted. */
int cuGraphInstantiateWithFlags(struct work **made, struct work *graph, unsigned long long flags)
{
	struct work **last = made;

	IN_CONTEXT();
	*made = NULL;
	for (; graph; graph = graph->next) {
		*last = malloc(sizeof(**last));
		**last = *graph;
		(*last)->next = NULL;
		last = &(*last)->next;
	}
	return flags ? NOT_FOUND : OK;
}

int cuGraphDestroy(struct work *graph)
{
	while (graph) {
		struct work *next = graph->next;

		free(graph);
		graph = next;
	}
	return OK;
}

int cuGraphExecDestroy(struct work *made)
{
	return cuGraphDestroy(made);
}

int cuGraphLaunch(struct work *made, struct stream *stream)
{
	IN_CONTEXT();
	for (; made; made = made->next) {
		struct work *work = add(stream);

		*work = *made;
		work->next = NULL;
	}
	return OK;
}

int cuStreamSynchronize(struct stream *stream)
{
	static int waits;
	const char *most = getenv("CUDA_WAITS");

	IN_CONTEXT();
	if (most && __atomic_add_fetch(&waits, 1, __ATOMIC_RELAXED) > atoi(most))
		return LAUNCH_FAILED;
	while (stream->first) {
		struct work *work = stream->first;

		if (work->function)
			launch(work);
		else if (work->event)
			record(work->event);
		else
			memcpy(work->to, work->from, work->bytes);
		stream->first = work->next;
		free(work);
	}
	stream->last = &stream->first;
	join(stream);
	return OK;
}

/* What `nvrtcGetCUBIN` gave: the source. */
int cuModuleLoadData(void **handle, const void *image)
{
	char folder[] = "/tmp/stand-in-"
			"XX"
			"XX"
			"XX",
	     command[256], path[64];
	FILE *source;

	IN_CONTEXT();
	if (!mkdtemp(folder))
		return NOT_FOUND;
	snprintf(path, sizeof(path), "%s/kernels.c", folder);
	source = fopen(path, "w");
	fprintf(source, "%s\n_Thread_local u32 item;\n", (const char *)image);
	fclose(source);
	snprintf(command, sizeof(command), "cd %s && cc -O1 -shared -fPIC -o kernels.so kernels.c",
		 folder);
	snprintf(path, sizeof(path), "%s/kernels.so", folder);
	module = system(command) ? NULL : dlopen(path, RTLD_NOW);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	if (system(command))
		return NOT_FOUND;
	*handle = module;
	return module ? OK : NOT_FOUND;
}

int cuModuleGetFunction(struct function **function, void *handle, const char *name)
{
	*function = calloc(1, sizeof(**function));
	(*function)->run = (kernel)dlsym(handle, name);
	(*function)->stays = !strcmp(name, "persist");
	/* Where input and output begin, how many keys there are, and of what. */
	(*function)->numbers = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5;
	(*function)->parameters = !strncmp(name, "lpm", 3) ? 7 : !strncmp(name, "acl", 3) ? 8 : 9;
	if ((*function)->stays) {
		(*function)->numbers = 1 << 4 | 1 << 5 | 1 << 6;
		(*function)->parameters = 13;
	}
	if (!strncmp(name, "batch", 5)) {
		(*function)->numbers = 1 << 1 | (name[6] == 'd' ? 1 << 3 : 0);
		(*function)->parameters = name[6] == 'd' ? 9 : 4;
	}
	if (!strcmp(name, "combine") || !strcmp(name, "narrow")) {
		(*function)->numbers = 1 << 1 | 1 << 3;
		(*function)->parameters = 4;
	}
	return (*function)->run ? OK : NOT_FOUND;
}

int cuLaunchKernel(struct function *function, unsigned blocks, unsigned y, unsigned z,
		   unsigned threads, unsigned ty, unsigned tz, unsigned shared,
		   struct stream *stream, void **values, void **extra)
{
	struct work staying = { 0 }, *work;

	IN_CONTEXT();
	work = function->stays ? &staying : add(stream);
	work->function = function;
	work->items = blocks * threads * y * z * ty * tz;
	for (int i = 0; i < function->parameters; i++)
		work->values[i] =
			function->numbers >> i & 1 ? *(uint32_t *)values[i] : *(address *)values[i];
	if (function->stays)
		return stand(stream, work, blocks);
	return OK;
}
