/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Kernels that stay: each group is a thread of its own. Part of cuda.c. */
struct group {
	struct stream *stream;
	struct work work;
	uint32_t number;
};

static void *stay(void *argument)
{
	struct group *group = argument;

	run(&group->work, group->number);
	__atomic_add_fetch(&group->stream->ended, 1, __ATOMIC_RELEASE);
	free(group);
	return NULL;
}

static void join(struct stream *stream)
{
	for (int i = 0; i < stream->started; i++)
		pthread_join(stream->groups[i], NULL);
	stream->started = stream->ended = 0;
}

/* The groups are there as soon as they are launched. */
static int stand(struct stream *stream, struct work *work, unsigned blocks)
{
	join(stream);
	for (unsigned i = 0; i < blocks && i < GROUPS; i++) {
		struct group *group = malloc(sizeof(*group));

		*group = (struct group){ stream, *work, i };
		stream->started++;
		if (pthread_create(&stream->groups[i], NULL, stay, group))
			return NOT_FOUND;
	}
	return blocks == GROUPS ? OK : NOT_FOUND;
}
