// Checksums of ranges of memory: word_sum.h.  Sums of integers do not depend on the order in which
// blocks add them.
//
//     reads 8 bytes for a word

#include "../word_sum.h"
#include "device.cuh"

static __global__ void sum_words(unsigned long long *sum, const uint64_t *word, int64_t words,
                                 int64_t rest) {
  unsigned long long mine = 0;
  for (int64_t i = first_thread(); i < words; i += all_threads())
    mine += word_mix(word[i], (uint64_t)i);
  if (first_thread() == 0) mine += word_mix_rest((const char *)(word + words), rest, words);
  atomicAdd(sum, mine);
}

int nnrt_gpu_checksum(uint64_t *sum, const void *at, int64_t bytes) {
  int64_t words = bytes / 8;
  // Each thread adds once, so it takes many words.
  return launch(sum_words, blocks_for((words + 31) / 32), BLOCK, 0, (unsigned long long *)sum,
                (const uint64_t *)at, words, bytes % 8);
}
