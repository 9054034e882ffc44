/* What the parts of the library have in common. */
#ifndef HOSTCPU_TRANSFER_H
#define HOSTCPU_TRANSFER_H

#include "hostcpu.h"

#define MOST_BYTES ((int64_t)1 << 46) /* of any size or stride: products of two small ones cannot overflow */

/* a * b, or -1 when that is no size in memory; neither is negative */
int64_t product(int64_t a, int64_t b);
int is_size(int64_t value);
int is_apart(uint64_t a, int64_t a_bytes, uint64_t b, int64_t b_bytes);

/* HOSTCPU_OK, or what is wrong apart from the block ids */
int64_t check_transfer(const struct hostcpu_transfer *transfer);

/* Copies the ids before end that count, -1 for the others; of a block that is written more than once only the last
 * position stays. Returns a status. */
int64_t keep_ids(const struct hostcpu_transfer *transfer, int64_t end, int64_t *kept, int64_t *fault);

#endif
