/* Attention of one query over the keys and values of its sequence, which lie in pages of PAGE tokens.

   A page holds, for each layer, keys (heads, width, PAGE) and values (heads, PAGE, width), as ELEMENT: float or half. Keys
   are transposed, so that the scores of a page are sums over `width` of whole registers. A query reads columns `begin` to
   `end` of its sequence; the order of all sums depends on these alone, so the result is the same to the bit whatever else
   is computed, and whether a token is read alone, in a prompt, or as a guess of speculative decoding.

   This file is included once for each ELEMENT, with LOAD, STORE and the suffix of the NAMEs. */

#include "../inference/lanes.h"

#ifndef PAGE
#define PAGE LANE_COUNT

struct pages {
    void *store; /* (pages, page_size) elements */
    int64_t page_size;
    const int32_t *tables; /* (rows, most_pages): the pages of each row, in the order of its tokens */
    int64_t most_pages;
};
#endif

/* `next`: where the keys of the next page lie, which are fetched meanwhile: pages are far apart. */
static inline lanes NAME(page_scores)(const float *q, const ELEMENT *keys, const ELEMENT *next, int64_t width)
{
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 4 <= width; i += 4, keys += 4 * PAGE, next += 4 * PAGE) {
        for (int64_t ahead = 0; ahead < 4 * PAGE * (int64_t)sizeof(ELEMENT); ahead += 64)
            __builtin_prefetch((const char *)next + ahead);
        a += q[i] * LOAD(keys);
        b += q[i + 1] * LOAD(keys + PAGE);
        c += q[i + 2] * LOAD(keys + 2 * PAGE);
        d += q[i + 3] * LOAD(keys + 3 * PAGE);
    }
    for (; i < width; i++, keys += PAGE) a += q[i] * LOAD(keys);
    return (a + b) + (c + d);
}

/* out = softmax(q Kᵀ · scale + bias) V over columns begin … end − 1. `table`: the row's pages; `keys_at`, `values_at`: where
   the layer's head lies in a page; `bias`: that of column 0, or NULL, readable up to the end of the last page; `scores`:
   scratch memory for the columns of all pages. */
static void NAME(attend_one)(const float *q, const struct pages *pages, const int32_t *table, int64_t keys_at,
                             int64_t values_at, const float *bias, float *scores, float *out, int64_t begin, int64_t end,
                             int64_t width, float scale)
{
    const ELEMENT *store = pages->store;
    int64_t first = begin / PAGE, last = (end - 1) / PAGE;
    lanes most = (lanes){0} - 3e38f, total = {0};
    for (int64_t page = first; page <= last; page++) {
        const ELEMENT *keys = store + table[page] * pages->page_size + keys_at;
        const ELEMENT *next = store + table[page < last ? page + 1 : first] * pages->page_size;
        lanes s = NAME(page_scores)(q, keys, next + (page < last ? keys_at : values_at), width) * scale;
        if (bias) s += *(const lanes *)(bias + page * PAGE);
        float *place = scores + (page - first) * PAGE;
        *(lanes *)place = s;
        if (page == first || page == last) { /* columns of the page that the query does not see */
            for (int64_t c = page * PAGE; c < begin; c++) place[c % PAGE] = -3e38f;
            for (int64_t c = end; c < (page + 1) * PAGE; c++) place[c % PAGE] = -3e38f;
        }
        most = larger(most, *(lanes *)place);
    }
    float top = most[0];
    for (int lane = 1; lane < PAGE; lane++) top = most[lane] > top ? most[lane] : top;
    for (int64_t page = first; page <= last; page++) {
        float *place = scores + (page - first) * PAGE;
        *(lanes *)place = exponentials(larger(*(lanes *)place - top, (lanes){0} - 87.0f));
        if (page == first || page == last) {
            for (int64_t c = page * PAGE; c < begin; c++) place[c % PAGE] = 0;
            for (int64_t c = end; c < (page + 1) * PAGE; c++) place[c % PAGE] = 0;
        }
        total += *(lanes *)place;
    }
    float sum = 0;
    for (int lane = 0; lane < PAGE; lane++) sum += total[lane];

#define EACH_COLUMN(WIDE, BODY)                                                                               \
    for (int64_t page = first; page <= last; page++) {                                                        \
        const ELEMENT *v = store + table[page] * pages->page_size + values_at + d;                            \
        const ELEMENT *next = store + table[page < last ? page + 1 : page] * pages->page_size + values_at + d; \
        const float *s = scores + (page - first) * PAGE;                                                      \
        int64_t low = page == first ? begin % PAGE : 0, high = page == last ? (end - 1) % PAGE + 1 : PAGE;    \
        for (int64_t c = low; c < high; c++) {                                                                \
            for (int64_t ahead = 0; ahead < (WIDE) * (int64_t)sizeof(ELEMENT); ahead += 64)                   \
                __builtin_prefetch((const char *)(next + c * width) + ahead);                                 \
            BODY                                                                                              \
        }                                                                                                     \
    }
    int64_t d = 0;
    for (; d + 4 * PAGE <= width; d += 4 * PAGE) {
        lanes o[4] = {{0}};
        EACH_COLUMN(4 * PAGE, const ELEMENT *place = v + c * width;
                    o[0] += s[c] * LOAD(place); o[1] += s[c] * LOAD(place + PAGE);
                    o[2] += s[c] * LOAD(place + 2 * PAGE); o[3] += s[c] * LOAD(place + 3 * PAGE);)
        for (int part = 0; part < 4; part++) *(lanes *)(out + d + part * PAGE) = o[part] / sum;
    }
    for (; d + PAGE <= width; d += PAGE) {
        lanes o = {0};
        EACH_COLUMN(PAGE, o += s[c] * LOAD(v + c * width);)
        *(lanes *)(out + d) = o / sum;
    }
    for (; d < width; d++) {
        float o = 0;
        EACH_COLUMN(1, float one[PAGE]; LOAD_ONE(one, v + c * width); o += s[c] * one[0];)
        out[d] = o / sum;
    }
#undef EACH_COLUMN
}

/* Store the keys and values (heads, width) of a token in column `column` of a page. */
static void NAME(store_token)(const struct pages *pages, int32_t page, int64_t layer_at, int64_t column, const float *k,
                              const float *v, int64_t heads, int64_t width)
{
    ELEMENT *keys = (ELEMENT *)pages->store + page * pages->page_size + layer_at, *values = keys + heads * width * PAGE;
    for (int64_t head = 0; head < heads; head++, keys += width * PAGE, values += width * PAGE)
        for (int64_t d = 0; d < width; d++) {
            STORE(keys + d * PAGE + column, k[head * width + d]);
            STORE(values + column * width + d, v[head * width + d]);
        }
}
