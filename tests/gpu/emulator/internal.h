// Interfaces between the parts of the emulated runtime, libcudart.  See emulator.h.

#ifndef EMULATOR_INTERNAL_H
#define EMULATOR_INTERNAL_H

#include <pthread.h>

#include "emulator.h"

// ---- device.c

int emulated_gpus(void);
size_t emulated_memory(void);                                  // bytes of each GPU
int emulated_device(void);                                     // the calling thread's
cudaError_t emulated_error(cudaError_t e);                     // stores it for cudaGetLastError
cudaError_t emulated_ready(void);                              // checks for driver and GPU
int64_t emulated_setting(const char *name, int64_t otherwise); // from the environment

// The first statement of every function of the runtime.
#define NEED_DEVICE                                                                                \
  do {                                                                                             \
    cudaError_t ready_ = emulated_ready();                                                         \
    if (ready_ != cudaSuccess) return emulated_error(ready_);                                      \
  } while (0)
// Fails if the function is forbidden during capture.
#define NEED_NOT_RECORDING                                                                         \
  do {                                                                                             \
    NEED_DEVICE;                                                                                   \
    cudaError_t recording_ = emulated_capture_forbids();                                           \
    if (recording_ != cudaSuccess) return emulated_error(recording_);                              \
  } while (0)

// ---- memory.c

void emulated_open_memory(void);  // gives this thread access to GPU memory
void emulated_close_memory(void); // ends the access
// Describes the memory at or near an address in `out`.
void emulated_describe(const void *p, char *out, size_t bytes);

// ---- stream.c

typedef struct CUstream_st Stream;
typedef struct CUevent_st Event;

typedef struct Item {
  EmulatedWork *work; // NULL: wait until `on` has completed `upto`
  Stream *on;
  uint64_t upto, number;
  bool begun;
  const void *chain;
  double put_at; // seconds
  struct Item *next;
} Item;

struct CUstream_st {
  int device, priority;
  bool blocking; // synchronises with the legacy stream
  bool legacy, destroyed;
  Item *first, *last;
  uint64_t put, done;      // numbers of items
  uint64_t looked_upto;    // no item up to here waits for another stream
  uint64_t asked_at;       // `put` when cudaStreamQuery last returned `not ready`
  bool busy;               // a thread is running the first item
  struct Capture *capture; // the capture of its work, or NULL
  int *tails, n_tails;     // nodes that its next one depends on
  Stream *next;
};

struct CUevent_st {
  unsigned flags;
  Stream *stream; // of its last record; NULL: none yet
  uint64_t upto;
  bool asked;              // cudaEventQuery has returned `not ready` since it was recorded
  struct Capture *capture; // or during capture: the graph, and the nodes before it
  int *tails, n_tails;
  double ran_at; // milliseconds
};

extern pthread_mutex_t emulated_lock;                                    // guards all of this
extern Stream *emulated_streams;                                         // includes destroyed ones
Stream *emulated_stream(cudaStream_t s);                                 // NULL if it is none
cudaError_t emulated_put(Stream *s, EmulatedWork *w, const void *chain); // locked, not in capture
void emulated_finish(Stream *s, uint64_t upto);                          // locked
void emulated_finish_device(int device);                                 // locked
void emulated_run(EmulatedWork *w, bool *done, bool again);              // not locked

// ---- graph.c

// Returns cudaErrorStreamCaptureUnsupported and invalidates the capture, if this thread is in one.
cudaError_t emulated_capture_forbids(void);
cudaError_t emulated_record(Stream *s, EmulatedWork *w, const void *chain); // locked
cudaError_t emulated_record_event(Stream *s, Event *e);                     // locked
cudaError_t emulated_record_wait(Stream *s, Event *e);                      // locked
cudaError_t emulated_capture_legacy(void); // locked: whether the legacy stream may be used

// ---- block.c

// The block and thread that the calling thread emulates; false if none.
bool emulated_position(const void **kernel, uint3 *block, uint3 *thread);

// ---- symbols.c

const char *emulated_name(const void *function); // demangled; "a kernel" if unknown
typedef struct SharedVariable {
  size_t offset, bytes; // in the thread-local memory of the program
} SharedVariable;
int emulated_shared_variables(const SharedVariable **out); // of all kernels
char *emulated_thread_local(void);                         // of the calling thread

#endif
