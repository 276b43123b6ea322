/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stands in for NVIDIA's driver and for its compiler: kernels are compiled by cc, and run on this
 * machine. It is as late as it may be: what is asked of a stream is done when somebody waits for
 * the stream. A call in no context is an error; after CUDA_WAITS waits, if that is set, the device
 * is gone.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	OK = 0,
	OUT_OF_MEMORY = 2,
	INVALID_CONTEXT = 201,
	NOT_FOUND = 500,
	LAUNCH_FAILED = 719
};

typedef uint64_t address;
typedef void (*kernel)(address, address, address, address, address, address, address, address, address);

struct function {
	kernel run;
	uint32_t *item;
	int parameters;
};

struct work {
	struct work *next;
	/* A launch, or a copy. */
	struct function *function;
	uint32_t items;
	address values[9];
	void *to;
	const void *from;
	size_t bytes;
};

struct stream {
	struct work *first, **last;
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
	*value = what == 75 ? 9 : 0;
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
	IN_CONTEXT();
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

int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, struct stream *stream)
{
	return copy(stream, to, (void *)from, bytes);
}

/* One thread at a time. */
static void launch(struct work *work)
{
	static int busy;
	address *v = work->values;

	while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
		usleep(10);
	for (uint32_t i = 0; i < work->items; i++) {
		*work->function->item = i;
		work->function->run(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
	}
	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
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
		else
			memcpy(work->to, work->from, work->bytes);
		stream->first = work->next;
		free(work);
	}
	stream->last = &stream->first;
	return OK;
}

/* What `nvrtcGetCUBIN` gave: the source. */
int cuModuleLoadData(void **handle, const void *image)
{
	char folder[] = "/tmp/stand-in-" "XX" "XX" "XX", command[256], path[64];
	FILE *source;

	IN_CONTEXT();
	if (!mkdtemp(folder))
		return NOT_FOUND;
	snprintf(path, sizeof(path), "%s/kernels.c", folder);
	source = fopen(path, "w");
	fprintf(source, "%s\nu32 item;\n", (const char *)image);
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
	(*function)->item = dlsym(handle, "item");
	(*function)->parameters = !strncmp(name, "lpm", 3) ? 7 : !strncmp(name, "acl", 3) ? 8 : 9;
	return (*function)->run ? OK : NOT_FOUND;
}

int cuLaunchKernel(struct function *function, unsigned blocks, unsigned y, unsigned z,
		   unsigned threads, unsigned ty, unsigned tz, unsigned shared,
		   struct stream *stream, void **values, void **extra)
{
	struct work *work;

	IN_CONTEXT();
	work = add(stream);
	work->function = function;
	work->items = blocks * threads * y * z * ty * tz;
	for (int i = 0; i < function->parameters; i++)
		/* Where input and output begin, and how many keys there are, of whole frames or not. */
		work->values[i] =
			i == 1 || (i >= 3 && i <= 5) ? *(uint32_t *)values[i] : *(address *)values[i];
	return OK;
}

int nvrtcCreateProgram(char **program, const char *source, const char *name, int headers,
		       const char **texts, const char **names)
{
	*program = strdup(source);
	return OK;
}

int nvrtcCompileProgram(char *program, int count, const char **options)
{
	return count > 0 && !strcmp(options[0], "--gpu-architecture=sm_90") ? OK : 5;
}

int nvrtcDestroyProgram(char **program)
{
	free(*program);
	return OK;
}
int nvrtcGetCUBINSize(char *program, size_t *bytes)
{
	*bytes = strlen(program) + 1;
	return OK;
}
int nvrtcGetCUBIN(char *program, char *to)
{
	strcpy(to, program);
	return OK;
}
int nvrtcGetProgramLogSize(char *program, size_t *bytes)
{
	*bytes = 1;
	return OK;
}
int nvrtcGetProgramLog(char *program, char *to)
{
	*to = 0;
	return OK;
}
