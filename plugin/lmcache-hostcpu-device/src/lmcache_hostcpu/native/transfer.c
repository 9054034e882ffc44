/* Transfers: how they are cut into units of work, and the copies. */
#include "transfer.h"
#include "rows.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_BYTES (512 * 1024)        /* of one unit of work: small enough to share out evenly */
#define STREAM_BYTES (4 * 1024 * 1024) /* what is larger leaves the caches anyway */
#define PIECE_BYTES 512                /* of a longer row at once: prefetching and copying take turns */
/* How far reading is ahead of copying. Blocks lie anywhere, so that the hardware sees no pattern at their borders; this
 * is how much a core reads in the time that memory takes to answer when the page tables are not cached either. */
#define AHEAD_BYTES (16 * 1024)

static _Atomic int64_t copied_bytes;

int64_t hostcpu_abi(void)
{
    return HOSTCPU_ABI;
}

int64_t hostcpu_copied_bytes(void)
{
    return atomic_load_explicit(&copied_bytes, memory_order_relaxed);
}

/* The rows of a block in the order in which they are copied: outer x inner, a stride for each of the two on each side. */
struct grid {
    int64_t outer;
    int64_t inner;
    int64_t row_bytes;
    int64_t to_outer;
    int64_t to_inner;
    int64_t from_outer;
    int64_t from_inner;
};

struct plan {
    const struct hostcpu_transfer *transfer;
    struct grid grid;
    int is_streamed;
    const int64_t *ids; /* by position; -1 is left out */
    int64_t blocks;     /* in all planes of all objects, those left out included */
    int64_t blocks_per_unit;
};

/* Walks over the rows of a unit. There are two at a time: one reads ahead for the other. */
struct walk {
    const struct plan *plan;
    int64_t left; /* blocks of the unit, this one included */
    int64_t in_object;
    int64_t plane;
    int64_t object;
    int64_t outer;
    int64_t inner;
    const char *from_block;
    char *to_block;
    const char *from;
    char *to;
};

static void go_to_row(struct walk *walk)
{
    const struct grid *grid = &walk->plan->grid;
    walk->inner = 0;
    walk->from = walk->from_block + walk->outer * grid->from_outer;
    walk->to = walk->to_block + walk->outer * grid->to_outer;
}

static void next_block(struct walk *walk)
{
    const struct hostcpu_transfer *t = walk->plan->transfer;

    walk->left--;
    if (++walk->in_object < t->blocks_per_object)
        return;
    walk->in_object = 0;
    if (++walk->plane < t->planes)
        return;
    walk->plane = 0;
    walk->object++;
}

/* Goes to the first row of this block, or of the first after it that is not left out; left is 0 when there is none. */
static void go_to_block(struct walk *walk)
{
    const struct hostcpu_transfer *t = walk->plan->transfer;

    for (; walk->left > 0; next_block(walk)) {
        const int64_t position = walk->object * t->blocks_per_object + walk->in_object;
        if (position >= t->ids || walk->plan->ids[position] < 0)
            continue;
        char *block = (char *)(uintptr_t)t->plane_bases[walk->plane] + walk->plan->ids[position] * t->block_stride;
        char *tokens = (char *)(uintptr_t)t->object_bases[walk->object] + walk->plane * t->object_plane_stride +
                       t->object_column + walk->in_object * t->block_tokens * t->object_token_stride;
        walk->from_block = t->to_objects ? block : tokens;
        walk->to_block = t->to_objects ? tokens : block;
        walk->outer = 0;
        go_to_row(walk);
        return;
    }
}

static inline void go_on(struct walk *walk)
{
    const struct grid *grid = &walk->plan->grid;

    if (++walk->inner < grid->inner) {
        walk->from += grid->from_inner;
        walk->to += grid->to_inner;
    } else if (++walk->outer < grid->outer) {
        go_to_row(walk);
    } else {
        next_block(walk);
        go_to_block(walk);
    }
}

static void copy_unit(void *context, int64_t unit)
{
    const struct plan *plan = context;
    const int64_t row_bytes = plan->grid.row_bytes, first = unit * plan->blocks_per_unit;
    const int64_t left = plan->blocks - first, per_object = plan->transfer->blocks_per_object;
    struct walk copying = {.plan = plan,
                           .left = left < plan->blocks_per_unit ? left : plan->blocks_per_unit,
                           .in_object = first % per_object,
                           .plane = first / per_object % plan->transfer->planes,
                           .object = first / per_object / plan->transfer->planes};
    int64_t ahead_bytes = 0;

    go_to_block(&copying);
    struct walk reading = copying;
    while (copying.left > 0) {
        for (; row_bytes >= LINE && ahead_bytes < AHEAD_BYTES && reading.left > 0; go_on(&reading)) {
            prefetch_row(reading.from, row_bytes);
            ahead_bytes += row_bytes;
        }
        if (plan->is_streamed)
            stream_row(copying.to, copying.from, row_bytes);
        else
            memcpy(copying.to, copying.from, (size_t)row_bytes);
        ahead_bytes -= row_bytes;
        go_on(&copying);
    }
}

/* Whether all places of the destination are multiples of a number. */
static int is_aligned(const struct hostcpu_transfer *t, const struct grid *grid, int64_t unit)
{
    const uint64_t *bases = t->to_objects ? t->object_bases : t->plane_bases;
    uint64_t bits = (uint64_t)grid->row_bytes;

    for (int64_t i = 0; i < (t->to_objects ? t->objects : t->planes); i++)
        bits |= bases[i];
    bits |= grid->outer > 1 ? (uint64_t)grid->to_outer : 0;
    bits |= grid->inner > 1 ? (uint64_t)grid->to_inner : 0;
    if (t->to_objects)
        bits |= (uint64_t)(t->object_token_stride | t->object_plane_stride | t->object_column);
    else
        bits |= (uint64_t)t->block_stride;
    return bits % (uint64_t)unit == 0;
}

/* The rows of one block, as long as they can be, in the order in which they lie at one end: at the source, so that it is
 * read as it lies in memory, if each row fills whole lines of the destination; else at the destination, so that each of
 * its lines is filled at once. */
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
    if (heads == 1 && tokens == 1 && row % PIECE_BYTES == 0)
        return (struct grid){row / PIECE_BYTES, 1, PIECE_BYTES, PIECE_BYTES, 0, PIECE_BYTES, 0};
    const struct grid as_in_cache =
        t->to_objects
            ? (struct grid){heads, tokens, row, t->head_bytes, t->object_token_stride, t->head_stride, t->token_stride}
            : (struct grid){heads, tokens, row, t->head_stride, t->token_stride, t->head_bytes, t->object_token_stride};
    const struct grid as_in_object =
        t->to_objects
            ? (struct grid){tokens, heads, row, t->object_token_stride, t->head_bytes, t->token_stride, t->head_stride}
            : (struct grid){tokens, heads, row, t->token_stride, t->head_stride, t->object_token_stride, t->head_bytes};
    return is_aligned(t, &as_in_cache, LINE) == (t->to_objects != 0) ? as_in_cache : as_in_object;
}

static void run_plan(const struct hostcpu_transfer *t, const int64_t *ids, int64_t end)
{
    const int64_t block_bytes = t->block_tokens * t->heads * t->head_bytes;
    const int64_t objects = (end + t->blocks_per_object - 1) / t->blocks_per_object;
    struct plan plan = {.transfer = t,
                        .grid = grid_of(t),
                        .ids = ids,
                        .blocks = objects * t->planes * t->blocks_per_object,
                        .blocks_per_unit = block_bytes >= UNIT_BYTES ? 1 : UNIT_BYTES / block_bytes};
    int64_t bytes = 0;

    for (int64_t at = 0; at < end; at++)
        bytes += ids[at] >= 0 ? block_bytes * t->planes : 0;
    plan.is_streamed = bytes >= STREAM_BYTES && is_aligned(t, &plan.grid, ROW_UNIT);
    hostcpu_run(copy_unit, &plan, (plan.blocks + plan.blocks_per_unit - 1) / plan.blocks_per_unit);
    atomic_fetch_add_explicit(&copied_bytes, bytes, memory_order_relaxed);
}

int64_t hostcpu_transfer(const struct hostcpu_transfer *t, int64_t *fault)
{
    int64_t status = check_transfer(t);

    if (status != HOSTCPU_OK)
        return status;
    int64_t end = product(t->objects, t->blocks_per_object);
    if (end < 0 || end > t->ids)
        end = t->ids;
    int64_t *kept = malloc((size_t)end * sizeof *kept);
    if (kept == NULL)
        return HOSTCPU_NO_MEMORY;
    status = keep_ids(t, end, kept, fault);
    if (status == HOSTCPU_OK)
        run_plan(t, kept, end);
    free(kept);
    return status;
}

struct flat_copy {
    char *to;
    const char *from;
    int64_t bytes;
    int is_streamed;
};

static void copy_part(void *context, int64_t unit)
{
    const struct flat_copy *copy = context;
    const int64_t at = unit * UNIT_BYTES;
    const int64_t bytes = copy->bytes - at < UNIT_BYTES ? copy->bytes - at : UNIT_BYTES;

    if (copy->is_streamed && bytes % ROW_UNIT == 0)
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
