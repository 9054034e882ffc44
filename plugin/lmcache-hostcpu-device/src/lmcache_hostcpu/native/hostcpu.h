/* Copies KV cache blocks between paged caches and LMCache's objects on host memory.
 *
 * A cache is a set of planes of one geometry: plane = blocks x tokens x heads, each head a run of bytes. Strides say
 * in which order they lie. An object holds for each plane its tokens one after the other, heads next to each other.
 * All sizes, strides and offsets are in bytes unless the name says otherwise. */
#ifndef HOSTCPU_H
#define HOSTCPU_H

#include <stdint.h>

#define HOSTCPU_ABI 1
#define HOSTCPU_API __attribute__((visibility("default")))

enum hostcpu_status {
    HOSTCPU_OK = 0,
    HOSTCPU_BAD_GEOMETRY = 1, /* strides or sizes that do not describe separate bytes, or leave the object */
    HOSTCPU_BAD_BLOCK = 2,    /* a block id outside the cache; *fault is its position */
    HOSTCPU_ALIASED = 3,      /* what is written overlaps itself or what is read */
    HOSTCPU_NO_MEMORY = 4,
};

/* Mirrored by lmcache_hostcpu.library; a change needs another HOSTCPU_ABI. */
struct hostcpu_transfer {
    int64_t to_objects; /* 1: cache to objects, 0: objects to cache */

    int64_t planes;
    const uint64_t *plane_bases;
    int64_t block_count; /* blocks in each plane */
    int64_t block_tokens;
    int64_t heads;
    int64_t head_bytes;
    int64_t block_stride;
    int64_t token_stride;
    int64_t head_stride;

    int64_t objects;
    const uint64_t *object_bases;
    int64_t object_bytes;
    int64_t object_plane_stride;
    int64_t object_token_stride;
    int64_t object_column; /* where in a token's bytes this plane's begin */

    int64_t ids;
    const int64_t *block_ids;
    int64_t blocks_per_object;
    int64_t first_block; /* ids before this position are left out */
};

HOSTCPU_API int64_t hostcpu_abi(void);

/* Checks everything before the first byte is written. Nothing was written unless it returns HOSTCPU_OK. */
HOSTCPU_API int64_t hostcpu_transfer(const struct hostcpu_transfer *transfer, int64_t *fault);

/* memcpy with all threads; HOSTCPU_ALIASED when the ranges overlap. */
HOSTCPU_API int64_t hostcpu_copy(uint64_t destination, uint64_t source, int64_t bytes);

/* How many threads work on one call (the caller is one of them), and on which CPUs they may run. */
HOSTCPU_API void hostcpu_configure(int64_t threads, const int64_t *cpus, int64_t cpu_count);

/* Bytes copied by this process so far. */
HOSTCPU_API int64_t hostcpu_copied_bytes(void);

/* Internal: calls work(context, unit) once for each unit, on all threads, and returns when all are done. */
typedef void (*hostcpu_work)(void *context, int64_t unit);
void hostcpu_run(hostcpu_work work, void *context, int64_t units);

#endif
