// Blocks of memory for messages between ranks, which every step uses again.
//
// A step sends the same messages as the one before.  So a block that is freed stays in a list of
// its size, and after the first steps none is allocated.  Sizes are rounded up, by less than an
// eighth, to one of eight in each power of two.  All ranks of a process share the lists, since the
// receiver frees the message of a sender.  Checkpoints send whole weights: their blocks are not
// kept.
//
// With AddressSanitizer nothing is kept, so that it notices a use of freed blocks.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

#ifdef __SANITIZE_ADDRESS__
enum { KEEPS = false };
#else
enum { KEEPS = true };
#endif

enum { STEPS = 8, LEAST = 6, LISTS = STEPS * (63 - LEAST) }; // from 64 bytes

// Before each block; its size keeps the block at a multiple of 64.
typedef union Head {
  struct {
    union Head *next; // of a free block
    int list;
  };
  char size[64];
} Head;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Head *free_block[LISTS];

// Returns the list of a size, and rounds the size up to that of its blocks.
static int list_of(int64_t *io_bytes) {
  int64_t bytes = *io_bytes < 1 << LEAST ? 1 << LEAST : *io_bytes;
  int power = 63 - __builtin_clzll((unsigned long long)bytes);
  int64_t unit = ((int64_t)1 << power) / STEPS;
  // The last step of a power of two is the first of the next.
  int64_t step = (bytes - ((int64_t)1 << power) + unit - 1) / unit;
  *io_bytes = ((int64_t)1 << power) + step * unit;
  return (power - LEAST) * STEPS + (int)step;
}

void *nnrt_block_new(int64_t bytes) {
  int list = list_of(&bytes);
  pthread_mutex_lock(&lock);
  Head *head = free_block[list];
  if (head) free_block[list] = head->next;
  pthread_mutex_unlock(&lock);
  if (!head) head = aligned_alloc(sizeof *head, sizeof *head + (size_t)(bytes + 63) / 64 * 64);
  if (!head) nnrt_out_of_memory((size_t)bytes);
  head->list = list;
  return head + 1;
}

void nnrt_block_free(void *block) {
  if (!block) return;
  Head *head = (Head *)block - 1;
  if (!KEEPS) {
    free(head);
    return;
  }
  pthread_mutex_lock(&lock);
  head->next = free_block[head->list];
  free_block[head->list] = head;
  pthread_mutex_unlock(&lock);
}

void nnrt_blocks_release(void) {
  for (int i = 0; i < LISTS; i++) {
    pthread_mutex_lock(&lock);
    Head *head = free_block[i];
    free_block[i] = NULL;
    pthread_mutex_unlock(&lock);
    for (Head *next; head; head = next) {
      next = head->next;
      free(head);
    }
  }
}
