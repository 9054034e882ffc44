/* The inner loops: a grid of rows from one place to another, the destination in the order of its addresses. */
#ifndef HOSTCPU_ROWS_H
#define HOSTCPU_ROWS_H

#include <stdint.h>
#include <string.h>

/* outer x inner rows; a step from row to row in each of the two is a stride */
struct grid {
    int64_t outer;
    int64_t inner;
    int64_t row_bytes;
    int64_t to_outer;
    int64_t to_inner;
    int64_t from_outer;
    int64_t from_inner;
    int streams; /* 1: past the caches; rows and their places in the destination are multiples of ROW_UNIT */
};

#define ROW_UNIT 16

typedef int64_t row_unit __attribute__((vector_size(ROW_UNIT)));
typedef int64_t row_unit_anywhere __attribute__((vector_size(ROW_UNIT), aligned(1), may_alias));

/* A plain store first reads the line that it overwrites: a third of the traffic of a copy. These do not. */
static inline void stream_row(char *to, const char *from, int64_t bytes)
{
    int64_t at = 0;

    for (; at + 4 * ROW_UNIT <= bytes; at += 4 * ROW_UNIT) {
        row_unit a = *(const row_unit_anywhere *)(from + at);
        row_unit b = *(const row_unit_anywhere *)(from + at + ROW_UNIT);
        row_unit c = *(const row_unit_anywhere *)(from + at + 2 * ROW_UNIT);
        row_unit d = *(const row_unit_anywhere *)(from + at + 3 * ROW_UNIT);
        __builtin_nontemporal_store(a, (row_unit *)(to + at));
        __builtin_nontemporal_store(b, (row_unit *)(to + at + ROW_UNIT));
        __builtin_nontemporal_store(c, (row_unit *)(to + at + 2 * ROW_UNIT));
        __builtin_nontemporal_store(d, (row_unit *)(to + at + 3 * ROW_UNIT));
    }
    for (; at < bytes; at += ROW_UNIT)
        __builtin_nontemporal_store((row_unit)*(const row_unit_anywhere *)(from + at), (row_unit *)(to + at));
}

/* A prefetch of an address that is not there does nothing. */
static inline void prefetch_row(const char *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(from + at, 0, 0);
}

#define LONGEST_PREFETCHED_ROW 2048 /* what is longer the hardware sees coming */

/* next_from: where the following grid is read, so that its first rows are on their way in time */
static inline void copy_grid(const struct grid *grid, char *to, const char *from, const char *next_from)
{
    const int64_t row_bytes = grid->row_bytes;
    const int prefetches = grid->outer > 1 && row_bytes <= LONGEST_PREFETCHED_ROW;

    for (int64_t o = 0; o < grid->outer; o++) {
        const char *ahead = o + 1 < grid->outer ? from + (o + 1) * grid->from_outer : next_from;
        char *to_row = to + o * grid->to_outer;
        const char *from_row = from + o * grid->from_outer;
        for (int64_t i = 0; i < grid->inner; i++) {
            if (prefetches)
                prefetch_row(ahead + i * grid->from_inner, row_bytes);
            if (grid->streams)
                stream_row(to_row, from_row, row_bytes);
            else
                memcpy(to_row, from_row, (size_t)row_bytes);
            to_row += grid->to_inner;
            from_row += grid->from_inner;
        }
    }
}

#endif
