// What the parts of the emulated runtime, libcudart, know of each other.  See emulator.h.

#ifndef EMULATOR_INTERNAL_H
#define EMULATOR_INTERNAL_H

#include <pthread.h>

#include "emulator.h"

// ---- device.c

int emulated_gpus(void);
size_t emulated_memory(void);                                  // bytes of each gpu
int emulated_device(void);                                     // the calling thread's
cudaError_t emulated_error(cudaError_t e);                     // remembers it for cudaGetLastError
cudaError_t emulated_ready(void);                              // are driver and gpu there?
int64_t emulated_setting(const char *name, int64_t otherwise); // from the environment

// What every function of the runtime begins with.
#define NEED_DEVICE                                                                                \
  do {                                                                                             \
    cudaError_t ready_ = emulated_ready();                                                         \
    if (ready_ != cudaSuccess) return emulated_error(ready_);                                      \
  } while (0)
// … if it is not allowed while the thread records a graph.
#define NEED_NOT_RECORDING                                                                         \
  do {                                                                                             \
    NEED_DEVICE;                                                                                   \
    cudaError_t recording_ = emulated_capture_forbids();                                           \
    if (recording_ != cudaSuccess) return emulated_error(recording_);                              \
  } while (0)

// ---- memory.c

void emulated_open_memory(void);  // from now on this thread may touch the gpu's memory
void emulated_close_memory(void); // and from now on not
// Writes to `out` what lies at or near an address.
void emulated_describe(const void *p, char *out, size_t bytes);

// ---- stream.c

typedef struct CUstream_st Stream;
typedef struct CUevent_st Event;

typedef struct Item {
  EmulatedWork *work; // NULL: wait for `on` to be done up to `upto`
  Stream *on;
  uint64_t upto, number;
  bool begun;
  const void *chain;
  double put_at; // seconds
  struct Item *next;
} Item;

struct CUstream_st {
  int device, priority;
  bool blocking; // waits for the legacy stream, and it for this
  bool legacy, destroyed;
  Item *first, *last;
  uint64_t put, done;      // numbers of items
  uint64_t looked_upto;    // no item up to here waits for another stream
  uint64_t asked_at;       // where it was when cudaStreamQuery last answered `not ready`
  bool busy;               // some thread is running the first item
  struct Capture *capture; // NULL, or where its work is recorded
  int *tails, n_tails;     // nodes that its next one comes after
  Stream *next;
};

struct CUevent_st {
  unsigned flags;
  Stream *stream; // where it was recorded; NULL: nowhere yet
  uint64_t upto;
  bool asked;              // cudaEventQuery has answered `not ready` since it was recorded
  struct Capture *capture; // or while recording: in which graph, after which nodes
  int *tails, n_tails;
  double ran_at; // milliseconds
};

extern pthread_mutex_t emulated_lock;    // of all of this
extern Stream *emulated_streams;         // all, also the destroyed ones
Stream *emulated_stream(cudaStream_t s); // NULL if it is none
cudaError_t emulated_put(Stream *s, EmulatedWork *w, const void *chain); // locked, not recording
void emulated_finish(Stream *s, uint64_t upto);                          // locked
void emulated_finish_device(int device);                                 // locked
void emulated_run(EmulatedWork *w, bool *done, bool again);              // not locked

// ---- graph.c

// cudaErrorStreamCaptureUnsupported, having ruined the recording, if this thread records.
cudaError_t emulated_capture_forbids(void);
cudaError_t emulated_record(Stream *s, EmulatedWork *w, const void *chain); // locked
cudaError_t emulated_record_event(Stream *s, Event *e);                     // locked
cudaError_t emulated_record_wait(Stream *s, Event *e);                      // locked
cudaError_t emulated_capture_legacy(void); // locked: may the legacy stream be used?

// ---- block.c

// Which block and thread the calling thread is emulating; false if none.
bool emulated_position(const void **kernel, uint3 *block, uint3 *thread);

// ---- symbols.c

const char *emulated_name(const void *function); // as in C++; "a kernel" if it is not known
typedef struct SharedVariable {
  size_t offset, bytes; // in the thread-local memory of the program
} SharedVariable;
int emulated_shared_variables(const SharedVariable **out); // of all kernels
char *emulated_thread_local(void);                         // of the calling thread

#endif
