// TensorBoard's event files: records of protobuf messages.
//
//     record = u64 length, u32 masked crc of it, bytes, u32 masked crc of them
//     Event  = 1: double wall_time, 2: int64 step, 3: string file_version (of the first), or
//              5: Summary { 1: Value { 1: string tag, 2: float simple_value } … }, or
//              7: SessionLog { 1: START }, at which later steps of earlier files are forgotten

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

typedef struct Bytes {
  uint8_t *at; // freed by the function that declares it
  int64_t n, room;
} Bytes;

static void put(Bytes *b, const void *data, int64_t n) {
  if (b->n + n > b->room) {
    b->room = 2 * (b->n + n);
    b->at = realloc(b->at, (size_t)b->room);
    if (!b->at) nnrt_must_alloc((size_t)-1); // reports the lack of memory
  }
  memcpy(b->at + b->n, data, (size_t)n);
  b->n += n;
}

static void put_varint(Bytes *b, uint64_t x) {
  for (; x >= 0x80; x >>= 7)
    put(b, &(uint8_t){(uint8_t)(x | 0x80)}, 1);
  put(b, &(uint8_t){(uint8_t)x}, 1);
}

enum { VARINT, FIXED64, LENGTH, FIXED32 = 5 };

static void put_key(Bytes *b, int field, int wire) {
  put_varint(b, (uint64_t)(field << 3 | wire));
}

static void put_bytes(Bytes *b, int field, const void *data, int64_t n) {
  put_key(b, field, LENGTH);
  put_varint(b, (uint64_t)n);
  put(b, data, n);
}

static uint32_t masked(const void *data, int64_t n) {
  uint32_t crc = nnrt_crc32c(0, data, n);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void write_event(Records *events, int64_t step, int field, const void *data, int64_t n) {
  Bytes event = {.n = 0}, record = {.n = 0};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
  // The fields of an Event, in the order of their numbers.
  put_key(&event, 1, FIXED64);
  put(&event, &time, 8);
  put_key(&event, 2, VARINT);
  put_varint(&event, (uint64_t)step);
  put_bytes(&event, field, data, n);

  // The record's frame has its own checksum, so a reader can trust the length.
  uint64_t length = (uint64_t)event.n;
  uint32_t of_length = masked(&length, 8), of_event = masked(event.at, event.n);
  put(&record, &length, 8);
  put(&record, &of_length, 4);
  put(&record, event.at, event.n);
  put(&record, &of_event, 4);
  nnrt_records_add(events, record.at, record.n);
  free(event.at);
  free(record.at);
}

// Opens a new file; *out_path is its name.  A file or link that has the name already stays.
static int open_new(const char *dir, char **out_path) {
  enum { TRIES = 100 };
  char host[HOST_NAME_MAX + 1] = "localhost";
  gethostname(host, sizeof host - 1);
  for (int i = 0; i < TRIES; i++) {
    char *path = nnrt_must_format("%s/events.out.tfevents.%lld.%s.%ld.%d", dir,
                                  (long long)time(NULL), host, (long)getpid(), i);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0666);
    *out_path = path;
    if (fd >= 0 || errno != EEXIST || i == TRIES - 1) return fd;
    free(path);
  }
  return -1;
}

bool nnrt_events_open(Records *events, const char *dir, int64_t first_step, Why *w) {
  char *path;
  if (!nnrt_make_folder(dir, w)) return false;
  int fd = open_new(dir, &path);
  if (fd < 0)
    why(w, "cannot write '%s': %s", path, strerror(errno));
  else
    nnrt_records_begin(events, fd, path);
  free(path);
  if (fd < 0) return false;
  static const char version[] = "brain.Event:2";
  write_event(events, 0, 3, version, sizeof version - 1);
  // A resumed run makes readers forget the steps that it repeats.
  static const uint8_t start[] = {1 << 3 | VARINT, 1};
  if (first_step > 0) write_event(events, first_step, 7, start, sizeof start);
  return true;
}

static void put_value(Bytes *summary, const char *tag, double x) {
  Bytes value = {.n = 0};
  float f = (float)x;
  // A nested message has its length before it, so it is made first.
  put_bytes(&value, 1, tag, (int64_t)strlen(tag));
  put_key(&value, 2, FIXED32);
  put(&value, &f, 4);
  put_bytes(summary, 1, value.at, value.n);
  free(value.at);
}

void nnrt_events_step(Records *events, const StepReport *s) {
  Bytes summary = {.n = 0};
  put_value(&summary, "loss", s->loss);
  if (s->has_grad_norm) put_value(&summary, "grad_norm", s->grad_norm);
  if (s->has_loss_scale) put_value(&summary, "loss_scale", s->loss_scale);
  put_value(&summary, "lr", s->lr);
  put_value(&summary, "step_ms", s->step_ms);
  put_value(&summary, "samples_per_s", s->samples_per_s);
  if (s->has_eval) put_value(&summary, "eval_loss", s->eval.loss);
  for (int i = 0; s->has_eval && i < s->eval.n_metrics; i++)
    put_value(&summary, s->eval.metric[i], s->eval.value[i]);
  write_event(events, s->step, 5, summary.at, summary.n);
  free(summary.at);
}
