/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stands in for NVIDIA's compiler: what it makes of a source is the source, which the driver's stand-in
 * takes. With CUDA_REFUSES it takes none.
 */
#include <stdlib.h>
#include <string.h>

enum {
	OK = 0
};

int nvrtcCreateProgram(char **program, const char *source, const char *name, int headers,
		       const char **texts, const char **names)
{
	*program = strdup(source);
	return OK;
}

int nvrtcCompileProgram(char *program, int count, const char **options)
{
	if (getenv("CUDA_REFUSES"))
		return 6;
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
