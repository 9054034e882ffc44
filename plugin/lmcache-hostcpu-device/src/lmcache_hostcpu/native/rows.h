/* The inner loops: one row of bytes from one place to another. */
#ifndef HOSTCPU_ROWS_H
#define HOSTCPU_ROWS_H

#include <stdint.h>

#define LINE 64
#define ROW_UNIT 16

typedef int64_t row_unit __attribute__((vector_size(ROW_UNIT)));
typedef int64_t row_unit_anywhere __attribute__((vector_size(ROW_UNIT), aligned(1), may_alias));

/* Past the caches: a plain store first reads the line that it overwrites, a third of the traffic of a copy. The
 * destination and the number of bytes are multiples of ROW_UNIT. */
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

/* Into the second level of the caches: the first has too few places for what is on its way. */
static inline void prefetch_row(const char *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(from + at, 0, 1);
}

#endif
