/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One source, three languages: OpenCL C, CUDA C++ and, for tests, plain C. Numbers are
 * little-endian.
 */
#ifdef __OPENCL_VERSION__
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
#define KERNEL __kernel
#define GLOBAL __global
#define INLINE static inline
#define ITEM() ((u32)get_global_id(0))
#define COUNT(number) atomic_inc(number)
#else
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define GLOBAL
#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#define INLINE static __device__ __forceinline__
#define ITEM() (blockIdx.x * blockDim.x + threadIdx.x)
#define COUNT(number) atomicAdd(number, 1u)
#else
#define KERNEL
#define INLINE static inline
/* Whoever calls a kernel sets it, in the calling thread. */
extern _Thread_local u32 item;
#define ITEM() item
#define COUNT(number) __atomic_fetch_add(number, 1, __ATOMIC_RELAXED)
#endif
#endif

/* Sections of tables begin at multiples of this many bytes, and are named by how many. */
#define CHUNK 4096

INLINE GLOBAL const u8 *section(GLOBAL const u8 *tables, u32 chunk)
{
	return tables + (u64)chunk * CHUNK;
}

/* A number as packets carry it. */
INLINE u32 big16(GLOBAL const u8 *at)
{
	return (u32)at[0] << 8 | at[1];
}

INLINE u32 big32(GLOBAL const u8 *at)
{
	return big16(at) << 16 | big16(at + 2);
}

INLINE u64 big64(GLOBAL const u8 *at)
{
	return (u64)big32(at) << 32 | big32(at + 4);
}
