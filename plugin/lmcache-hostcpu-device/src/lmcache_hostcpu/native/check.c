/* What may be copied at all: sizes that fit into each other, bytes that are written once, blocks that exist. */
#include "transfer.h"

#include <stdlib.h>

#define DIMENSIONS 3

/* What lies at one stride: runs of bytes, a step apart from each other. */
struct level {
    int64_t step;
    int64_t run;
};

struct extent {
    int64_t plane;                  /* from the first byte of a plane to its last */
    struct level level[DIMENSIONS]; /* those whose outer strides are multiples of theirs */
    int levels;
};

struct dimension {
    int64_t size;
    int64_t stride;
};

int64_t product(int64_t a, int64_t b)
{
    int64_t result;
    return __builtin_mul_overflow(a, b, &result) || result > MOST_BYTES ? -1 : result;
}

static void sort_by_stride(struct dimension *dimensions)
{
    for (int i = 1; i < DIMENSIONS; i++)
        for (int k = i; k > 0 && dimensions[k].stride < dimensions[k - 1].stride; k--) {
            struct dimension other = dimensions[k];
            dimensions[k] = dimensions[k - 1];
            dimensions[k - 1] = other;
        }
}

/* 0 when two elements of the plane share a byte */
static int measure_plane(const struct hostcpu_transfer *t, struct extent *extent)
{
    struct dimension dimensions[DIMENSIONS] = {
        {t->heads, t->head_stride}, {t->block_tokens, t->token_stride}, {t->block_count, t->block_stride}};
    int64_t bytes = t->head_bytes;

    sort_by_stride(dimensions);
    extent->levels = 0;
    for (int i = 0; i < DIMENSIONS; i++) {
        if (dimensions[i].size == 1)
            continue;
        const int64_t step = dimensions[i].stride, more = product(step, dimensions[i].size - 1);
        if (step < bytes || more < 0)
            return 0;
        while (extent->levels > 0 && step % extent->level[extent->levels - 1].step != 0)
            extent->levels--;
        extent->level[extent->levels++] = (struct level){step, bytes};
        bytes += more;
        if (bytes > MOST_BYTES)
            return 0;
    }
    extent->plane = bytes;
    return 1;
}

int is_size(int64_t value)
{
    return value > 0 && value <= MOST_BYTES;
}

static int is_geometry_sound(const struct hostcpu_transfer *t)
{
    const int64_t sizes[] = {t->planes,  t->block_count,         t->block_tokens,        t->heads,
                             t->objects, t->object_plane_stride, t->object_token_stride, t->head_bytes,
                             t->ids,     t->object_bytes,        t->blocks_per_object};
    const int64_t strides[] = {t->block_stride, t->token_stride, t->head_stride, t->object_column, t->first_block};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!is_size(sizes[i]))
            return 0;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        if (strides[i] < 0 || strides[i] > MOST_BYTES)
            return 0;
    /* a token's bytes, a plane's tokens, an object's planes: each inside the next */
    int64_t columns = product(t->heads, t->head_bytes);
    int64_t tokens = product(t->blocks_per_object, t->block_tokens);
    int64_t planes = product(t->planes, t->object_plane_stride);
    if (columns < 0 || tokens < 0 || planes < 0)
        return 0;
    int64_t plane = product(tokens, t->object_token_stride);
    return t->object_column + columns <= t->object_token_stride && plane >= 0 && plane <= t->object_plane_stride &&
           planes <= t->object_bytes;
}

int is_apart(uint64_t a, int64_t a_bytes, uint64_t b, int64_t b_bytes)
{
    return a + (uint64_t)a_bytes <= b || b + (uint64_t)b_bytes <= a;
}

/* Planes may interleave: those of a pool lie block by block next to each other. They are apart when, at one of the
 * strides, the runs of one fall between those of the other. */
static int are_planes_apart(uint64_t a, uint64_t b, const struct extent *extent)
{
    const uint64_t distance = a > b ? a - b : b - a;

    if (is_apart(a, extent->plane, b, extent->plane))
        return 1;
    for (int i = 0; i < extent->levels; i++) {
        const int64_t offset = (int64_t)(distance % (uint64_t)extent->level[i].step);
        if (offset >= extent->level[i].run && extent->level[i].step - offset >= extent->level[i].run)
            return 1;
    }
    return 0;
}

static int is_written_once(const struct hostcpu_transfer *t, const struct extent *extent)
{
    if (t->to_objects) {
        for (int64_t i = 0; i < t->objects; i++)
            for (int64_t k = 0; k < i; k++)
                if (!is_apart(t->object_bases[i], t->object_bytes, t->object_bases[k], t->object_bytes))
                    return 0;
    } else {
        for (int64_t i = 0; i < t->planes; i++)
            for (int64_t k = 0; k < i; k++)
                if (!are_planes_apart(t->plane_bases[i], t->plane_bases[k], extent))
                    return 0;
    }
    for (int64_t i = 0; i < t->objects; i++)
        for (int64_t k = 0; k < t->planes; k++)
            if (!is_apart(t->object_bases[i], t->object_bytes, t->plane_bases[k], extent->plane))
                return 0;
    return 1;
}

int64_t keep_ids(const struct hostcpu_transfer *t, int64_t end, int64_t *kept, int64_t *fault)
{
    uint8_t *seen = NULL;

    for (int64_t at = 0; at < t->first_block && at < end; at++)
        kept[at] = -1;
    for (int64_t at = t->first_block; at < end; at++) {
        kept[at] = t->block_ids[at];
        if (kept[at] < 0 || kept[at] >= t->block_count) {
            *fault = at;
            return HOSTCPU_BAD_BLOCK;
        }
    }
    if (t->to_objects)
        return HOSTCPU_OK;
    seen = calloc((size_t)(t->block_count / 8 + 1), 1);
    if (seen == NULL)
        return HOSTCPU_NO_MEMORY;
    for (int64_t at = end - 1; at >= t->first_block; at--) {
        uint8_t bit = (uint8_t)(1u << (kept[at] % 8));
        if (seen[kept[at] / 8] & bit)
            kept[at] = -1;
        else
            seen[kept[at] / 8] |= bit;
    }
    free(seen);
    return HOSTCPU_OK;
}

int64_t check_transfer(const struct hostcpu_transfer *t)
{
    struct extent extent;

    if (!is_geometry_sound(t) || !measure_plane(t, &extent))
        return HOSTCPU_BAD_GEOMETRY;
    return is_written_once(t, &extent) ? HOSTCPU_OK : HOSTCPU_ALIASED;
}
