/* Transfers: what may be copied at all, how it is cut into units of work, and the copies. */
#include "hostcpu.h"
#include "rows.h"

#include <stdatomic.h>
#include <stdlib.h>

#define UNIT_BYTES (256 * 1024)           /* of one unit of work: small enough to share out evenly */
#define STREAM_BYTES (4 * 1024 * 1024)    /* what is larger leaves the caches anyway */
#define MOST_BYTES ((int64_t)1 << 46)     /* of any size or stride: products of two small ones cannot overflow */

static _Atomic int64_t copied_bytes;

int64_t hostcpu_abi(void)
{
    return HOSTCPU_ABI;
}

int64_t hostcpu_copied_bytes(void)
{
    return atomic_load_explicit(&copied_bytes, memory_order_relaxed);
}

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

struct plan {
    const struct hostcpu_transfer *transfer;
    struct grid grid;
    const int64_t *ids; /* by position; -1 is left out */
    int64_t blocks_per_unit;
    int64_t units_per_object;
    int64_t object_block_stride;
};

struct dimension {
    int64_t size;
    int64_t stride;
};

/* a * b, or -1 when that is no size in memory; neither is negative */
static int64_t product(int64_t a, int64_t b)
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

static int is_size(int64_t value)
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

static int is_apart(uint64_t a, int64_t a_bytes, uint64_t b, int64_t b_bytes)
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

/* Copies the ids that count; of a block that is written more than once only the last position stays. */
static int64_t keep_ids(const struct hostcpu_transfer *t, int64_t end, int64_t *kept, int64_t *fault)
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

static int is_unit_aligned(const uint64_t *bases, int64_t count)
{
    uint64_t bits = 0;
    for (int64_t i = 0; i < count; i++)
        bits |= bases[i];
    return bits % ROW_UNIT == 0;
}

static int can_stream(const struct hostcpu_transfer *t, const struct grid *grid)
{
    uint64_t bits = (uint64_t)grid->row_bytes;
    if (t->to_objects) {
        bits |= (uint64_t)(t->object_token_stride | t->object_plane_stride | t->object_column | t->head_bytes);
        return bits % ROW_UNIT == 0 && is_unit_aligned(t->object_bases, t->objects);
    }
    bits |= (uint64_t)t->block_stride;
    bits |= grid->outer > 1 ? (uint64_t)grid->to_outer : 0;
    bits |= grid->inner > 1 ? (uint64_t)grid->to_inner : 0;
    return bits % ROW_UNIT == 0 && is_unit_aligned(t->plane_bases, t->planes);
}

/* The rows of one block, as long as they can be. */
static struct grid grid_of(const struct hostcpu_transfer *t)
{
    int64_t tokens = t->block_tokens, heads = t->heads, row = t->head_bytes;

    if (heads == 1 || t->head_stride == row) {
        row *= heads;
        heads = 1;
    }
    if (heads == 1 && t->token_stride == row && t->object_token_stride == row) {
        row *= tokens;
        tokens = 1;
    }
    if (t->to_objects)
        return (struct grid){tokens, heads, row, t->object_token_stride, t->head_bytes, t->token_stride,
                             t->head_stride, 0};
    return (struct grid){heads, tokens, row, t->head_stride, t->token_stride, t->head_bytes, t->object_token_stride, 0};
}

static void copy_unit(void *context, int64_t unit)
{
    const struct plan *plan = context;
    const struct hostcpu_transfer *t = plan->transfer;
    const int64_t per_plane = plan->units_per_object / t->planes;
    const int64_t object = unit / plan->units_per_object;
    const int64_t plane = unit % plan->units_per_object / per_plane;
    const int64_t first = object * t->blocks_per_object + unit % per_plane * plan->blocks_per_unit;
    int64_t end = first + plan->blocks_per_unit;
    char *in_cache = (char *)(uintptr_t)t->plane_bases[plane];
    char *in_object = (char *)(uintptr_t)t->object_bases[object] + plane * t->object_plane_stride + t->object_column;

    if (end > (object + 1) * t->blocks_per_object)
        end = (object + 1) * t->blocks_per_object;
    if (end > t->ids)
        end = t->ids;
    for (int64_t at = first; at < end; at++) {
        if (plan->ids[at] < 0)
            continue;
        char *block = in_cache + plan->ids[at] * t->block_stride;
        char *tokens = in_object + (at - object * t->blocks_per_object) * plan->object_block_stride;
        if (t->to_objects) {
            const int64_t next = at + 1 < end && plan->ids[at + 1] >= 0 ? plan->ids[at + 1] : plan->ids[at];
            copy_grid(&plan->grid, tokens, block, in_cache + next * t->block_stride);
        } else {
            copy_grid(&plan->grid, block, tokens, tokens + plan->object_block_stride);
        }
    }
}

static int64_t run_plan(const struct hostcpu_transfer *t, const int64_t *ids, int64_t end)
{
    const int64_t block_bytes = t->block_tokens * t->heads * t->head_bytes;
    struct plan plan = {.transfer = t, .grid = grid_of(t), .ids = ids};
    int64_t blocks = 0;

    for (int64_t at = 0; at < end; at++)
        blocks += ids[at] >= 0;
    int64_t bytes = blocks * block_bytes * t->planes;
    plan.blocks_per_unit = block_bytes >= UNIT_BYTES ? 1 : UNIT_BYTES / block_bytes;
    plan.units_per_object = (t->blocks_per_object + plan.blocks_per_unit - 1) / plan.blocks_per_unit * t->planes;
    plan.object_block_stride = t->block_tokens * t->object_token_stride;
    plan.grid.streams = bytes >= STREAM_BYTES && can_stream(t, &plan.grid);
    const int64_t objects = (end + t->blocks_per_object - 1) / t->blocks_per_object;
    if (bytes <= UNIT_BYTES) /* waking others takes longer */
        for (int64_t unit = 0; unit < objects * plan.units_per_object; unit++)
            copy_unit(&plan, unit);
    else
        hostcpu_run(copy_unit, &plan, objects * plan.units_per_object);
    atomic_fetch_add_explicit(&copied_bytes, bytes, memory_order_relaxed);
    return HOSTCPU_OK;
}

int64_t hostcpu_transfer(const struct hostcpu_transfer *t, int64_t *fault)
{
    struct extent extent;

    if (!is_geometry_sound(t) || !measure_plane(t, &extent))
        return HOSTCPU_BAD_GEOMETRY;
    if (!is_written_once(t, &extent))
        return HOSTCPU_ALIASED;
    int64_t end = product(t->objects, t->blocks_per_object);
    if (end < 0 || end > t->ids)
        end = t->ids;
    int64_t *kept = malloc((size_t)end * sizeof *kept);
    if (kept == NULL)
        return HOSTCPU_NO_MEMORY;
    int64_t status = keep_ids(t, end, kept, fault);
    if (status == HOSTCPU_OK)
        status = run_plan(t, kept, end);
    free(kept);
    return status;
}

struct flat_copy {
    char *to;
    const char *from;
    int64_t bytes;
    int streams;
};

static void copy_part(void *context, int64_t unit)
{
    const struct flat_copy *copy = context;
    const int64_t at = unit * UNIT_BYTES;
    const int64_t bytes = copy->bytes - at < UNIT_BYTES ? copy->bytes - at : UNIT_BYTES;

    if (copy->streams && bytes % ROW_UNIT == 0)
        stream_row(copy->to + at, copy->from + at, bytes);
    else
        memcpy(copy->to + at, copy->from + at, (size_t)bytes);
}

int64_t hostcpu_copy(uint64_t destination, uint64_t source, int64_t bytes)
{
    if (!is_size(bytes) || destination == 0 || source == 0)
        return HOSTCPU_BAD_GEOMETRY;
    if (!is_apart(destination, bytes, source, bytes))
        return HOSTCPU_ALIASED;
    struct flat_copy copy = {(char *)(uintptr_t)destination, (const char *)(uintptr_t)source, bytes,
                             bytes >= STREAM_BYTES && destination % ROW_UNIT == 0};
    hostcpu_run(copy_part, &copy, (bytes + UNIT_BYTES - 1) / UNIT_BYTES);
    atomic_fetch_add_explicit(&copied_bytes, bytes, memory_order_relaxed);
    return HOSTCPU_OK;
}
