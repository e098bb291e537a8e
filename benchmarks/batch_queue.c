/* Batches that wait for instances, one request after the other; see batch_queue.py.
 *
 * The rule is the batcher's: a batch starts when it is full or its first request has waited for the
 * window, and an instance is free; until then it grows.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, BLOCK = 4096, MOST_SIZE = 1024, MOST_INSTANCES = 1024 };

/* xoshiro256++ (Blackman and Vigna, 2021), independently in each lane. */
static void random_bits(uint64_t state[4][LANES], uint64_t *bits)
{
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t sum = state[0][lane] + state[3][lane];
        bits[lane] = ((sum << 23) | (sum >> 41)) + state[0][lane];
        uint64_t shifted = state[1][lane] << 17;
        state[2][lane] ^= state[0][lane];
        state[3][lane] ^= state[1][lane];
        state[1][lane] ^= state[2][lane];
        state[0][lane] ^= state[3][lane];
        state[2][lane] ^= shifted;
        state[3][lane] = (state[3][lane] << 45) | (state[3][lane] >> 19);
    }
}

/* Exponentially distributed numbers with mean 1. */
static void exponentials(uint64_t state[4][LANES], double *numbers)
{
    static uint64_t bits[BLOCK];
    for (int at = 0; at < BLOCK; at += LANES)
        random_bits(state, bits + at);
    for (int at = 0; at < BLOCK; at++) { /* 52 bits as a number from 1 to 2 */
        uint64_t word = (bits[at] >> 12) | 0x3ff0000000000000;
        memcpy(numbers + at, &word, sizeof word);
    }
    for (int at = 0; at < BLOCK; at++)
        numbers[at] = -log(2.0 - numbers[at]);
}

struct batching {
    long size, instances;
    double window_s;
    const double *seconds; /* by size, from 1 on */
};

struct histogram {
    long bins;
    double bin_s, from_s; /* requests that come earlier are not counted */
    uint32_t *counts;
};

/* Start all batches that are certain, and return the number of requests in them. */
static long start_batches(const struct batching *rule, double *free_s, const double *came_s,
                          long count, struct histogram *latencies)
{
    const double per_s = 1.0 / latencies->bin_s, top = latencies->bins - 1;
    long first = 0;
    while (first + rule->size <= count) {
        const double *members = came_s + first;
        long instance = 0;
        for (long other = 1; other < rule->instances; other++)
            if (free_s[other] < free_s[instance])
                instance = other;
        double start_s = fmin(members[0] + rule->window_s, members[rule->size - 1]);
        start_s = fmax(start_s, free_s[instance]);
        long joined = 1;
        while (joined < rule->size && members[joined] <= start_s)
            joined++;
        double end_s = start_s + rule->seconds[joined - 1];
        free_s[instance] = end_s;
        if (members[0] >= latencies->from_s)
            for (long each = 0; each < joined; each++)
                latencies->counts[(long)fmin((end_s - members[each]) * per_s, top)]++;
        first += joined;
    }
    return first;
}

/* Count the latencies of requests that come at alternating rates, until the last phase ends.
 *
 * Returns 1 if the sizes are beyond the limits above.
 */
int count_latencies(uint64_t state[4][LANES], const double *phase_ends_s, long phases,
                    const double rates_rps[2], long size, long instances, double window_s,
                    const double *seconds, long bins, double bin_s, double from_s, uint32_t *counts)
{
    static double came_s[BLOCK + MOST_SIZE], numbers[BLOCK], free_s[MOST_INSTANCES];
    struct batching rule = {size, instances, window_s, seconds};
    struct histogram latencies = {bins, bin_s, from_s, counts};
    double now_s = 0.0;
    long phase = 0, count = 0;
    if (size > MOST_SIZE || instances > MOST_INSTANCES)
        return 1;
    memset(free_s, 0, sizeof free_s);
    while (phase < phases) {
        exponentials(state, numbers);
        for (int at = 0; at < BLOCK && phase < phases; at++) {
            double left = numbers[at], rate = rates_rps[phase & 1];
            while (now_s + left / rate > phase_ends_s[phase]) { /* a process without memory */
                left -= (phase_ends_s[phase] - now_s) * rate;
                now_s = phase_ends_s[phase++];
                if (phase == phases)
                    break;
                rate = rates_rps[phase & 1];
            }
            if (phase == phases)
                break;
            now_s += left / rate;
            came_s[count++] = now_s;
        }
        long started = start_batches(&rule, free_s, came_s, count, &latencies);
        count -= started;
        memmove(came_s, came_s + started, count * sizeof *came_s);
    }
    return 0;
}
