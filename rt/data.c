// Samples of a data set for inputs.  A sample is a row of its file.
//
// Sample i of a step is read number n + i, if the steps before it read n samples: sample (n + i)
// modulo the number of samples, mapped by the permutation of its epoch if data is shuffled.  It is
// a function of seed, epoch and read number, never of rank.  Samples of several files are
// concatenated.  A rank copies only the samples of its own shard of an input, and touches no other
// part of the mapped files.

#include <stdlib.h>
#include <string.h>

#include "device.h"

// Opens the source of each flag: one file, or all files that match a pattern, in order of their
// names.
static bool assign(Data *d, const Flag *files, const char *flag, bool tokens, Why *w) {
  for (int i = 0; i < files->n; i++) {
    // "NAME=FILE" is for the input of this name; names may hold '='.
    const char *pair = files->list[i], *file = NULL;
    int at = -1;
    for (int k = 0; k < d->n && at < 0; k++) {
      const char *name = d->source[k].input->name;
      size_t n = strlen(name);
      if (strncmp(pair, name, n) != 0 || pair[n] != '=') continue;
      file = pair + n + 1;
      at = k;
    }
    if (at < 0) {
      // The error lists the inputs that the model has.
      char *names = nnrt_must_format("%s", d->n ? "" : "nothing");
      for (int k = 0; k < d->n; k++) {
        const NnrtTensor *t = d->source[k].input;
        char *longer =
            nnrt_must_format("%s%s'%s' %s", names, k ? ", " : "", t->name, nnrt_tensor_text(t).at);
        free(names);
        names = longer;
      }
      const char *equals = strchr(pair, '=');
      why(w, "--%s %s: the model has no input '%.*s'; it has %s", flag, pair,
          equals ? (int)(equals - pair) : (int)strlen(pair), pair, names);
      free(names);
      return false;
    }
    Source *s = &d->source[at];
    // Files of one input are all arrays of samples or all streams of tokens.
    if (s->n_shards && s->tokens != tokens)
      return why(w, "--%s %s: input '%s' is given both as rows and as tokens", flag, pair,
                 s->input->name);
    s->tokens = tokens;
    if (!nnrt_shards_find(s, file, w))
      return why(w, "--%s %s=%s: %s", flag, s->input->name, file, w->text);
  }
  return true;
}

// Checks a flat stream, which becomes samples of T tokens; a remainder of a file shorter than T is
// left out.
static bool check_tokens(const Source *s, Shard *shard, const char *flag, Why *w) {
  const NnrtTensor *t = s->input;
  const Npy *a = &shard->npy;
  bool read = a->dtype == NNRT_u8 || a->dtype == NNRT_u16 || a->dtype == NNRT_u32 ||
              a->dtype == NNRT_i32 || a->dtype == NNRT_i64;
  bool integers = t->dtype == NNRT_i32 || t->dtype == NNRT_i64;
  if (t->ndim != 2 || !integers || s->each != 1)
    return why(w, "--%s %s=%s: tokens are for an input of integers, [rows,length]; '%s' is %s",
               flag, t->name, shard->path, t->name, nnrt_tensor_text(t).at);
  if (a->ndim != 1 || !read)
    return why(
        w,
        "--%s %s=%s: a stream of tokens is one dimension of u8, u16, u32, i32 or i64; this is %s",
        flag, t->name, shard->path, nnrt_shape_text(a->dtype, a->dim, a->ndim).at);
  // A sample is as long as the input's second dimension.
  shard->samples = a->dim[0] / t->dim[1];
  shard->sample_bytes = t->dim[1] * nnrt_dtype_size(a->dtype);
  if (shard->samples > 0) return true;
  return why(w, "--%s %s=%s: %lld tokens do not fill one row of %lld", flag, t->name, shard->path,
             (long long)a->dim[0], (long long)t->dim[1]);
}

// Whether the data is converted: labels are often small integers, other data doubles, halves or
// bytes.  All else must have the input's type.
static bool converts(const NnrtTensor *t, NnrtDtype file) {
  if (t->dtype == NNRT_f32) return file == NNRT_f64 || file == NNRT_f16 || file == NNRT_u8;
  return strcmp(t->name, "labels") == 0 && t->dtype == NNRT_i64 &&
         (file == NNRT_i32 || file == NNRT_u16 || file == NNRT_u8);
}

// Returns the number of positions along dimension 0 for each sample; 0: the input has no samples.
static int64_t places_of_sample(const NnrtTensor *t, int64_t batch) {
  bool samples = t->ndim > 0 && !t->every_step && t->dim[0] % batch == 0;
  return samples ? t->dim[0] / batch : 0;
}

// Returns the number of samples in a file for an input with `each` positions per sample:
// [samples x each, …], or [samples, each, …]; -1: it has another shape.
static int64_t samples_of_file(const NnrtTensor *t, int64_t each, const Npy *a) {
  int more = a->ndim - t->ndim; // 1 if the positions have a dimension of their own
  bool fits = more == 0 ? a->dim[0] % each == 0 : more == 1 && each > 1 && a->dim[1] == each;
  for (int i = 1; fits && i < t->ndim; i++)
    fits = a->dim[i + more] == t->dim[i];
  if (!fits) return -1;
  return more ? a->dim[0] : a->dim[0] / each;
}

// Returns a hint for making labels from a file with other contents, or "".
static const char *labels_hint(const NnrtTensor *t, const Npy *a) {
  bool classes = strcmp(t->name, "labels") == 0 && t->dtype == NNRT_i64;
  if (!classes || a->ndim != t->ndim + 1) return "";
  if (a->dim[a->ndim - 1] == 1)
    return "\nhint: labels have no dimension for the classes: take it away with numpy's squeeze";
  return "\nhint: labels are numbers of classes: numpy's argmax makes them of one-hot rows";
}

static bool check_samples(const Source *s, Shard *shard, const char *flag, Why *w) {
  const NnrtTensor *t = s->input;
  const Npy *a = &shard->npy;
  bool batched = s->each > 0;
  int64_t samples = batched ? samples_of_file(t, s->each, a) : 0;
  // An input without samples has exactly the shape of its file.
  bool fits = batched ? samples >= 0 : a->ndim == t->ndim;
  for (int i = 0; !batched && fits && i < t->ndim; i++)
    fits = a->dim[i] == t->dim[i];
  // The element type.
  if (a->dtype != t->dtype && !converts(t, a->dtype))
    return why(w, "--%s %s=%s: the input's type is %s, the file's %s%s", flag, t->name, shard->path,
               nnrt_dtype_name(t->dtype), nnrt_dtype_name(a->dtype),
               *labels_hint(t, a) ? labels_hint(t, a) : "\nhint: convert it with numpy's astype");
  // The shape.
  if (samples < 0 && s->each > 1)
    return why(w,
               "--%s %s=%s: the input is %s, the file %s; a row of data has %lld of its first "
               "dimension: [rows*%lld] or [rows,%lld]",
               flag, t->name, shard->path, nnrt_tensor_text(t).at,
               nnrt_shape_text(a->dtype, a->dim, a->ndim).at, (long long)s->each,
               (long long)s->each, (long long)s->each);
  if (!fits)
    return why(w, "--%s %s=%s: the input is %s, the file %s%s%s", flag, t->name, shard->path,
               nnrt_tensor_text(t).at, nnrt_shape_text(a->dtype, a->dim, a->ndim).at,
               batched ? "; all but the first dimension must be equal" : "", labels_hint(t, a));
  shard->sample_bytes = nnrt_dtype_size(a->dtype) * (batched ? s->each : 1);
  for (int i = batched ? 1 : 0; i < t->ndim; i++)
    shard->sample_bytes *= t->dim[i];
  shard->samples = samples;
  if (!batched && s->n_shards > 1)
    return why(w, "--%s %s=%s: the input has no rows, and is one file, not %d", flag, t->name,
               shard->path, s->n_shards);
  if (batched && shard->samples == 0)
    return why(w, "--%s %s=%s: there are no rows", flag, t->name, shard->path);
  return true;
}

bool nnrt_data_open(Data *d, const NnrtProgram *p, const NnrtGraph *g, const Flag *input,
                    const Flag *tokens, const char *prefix, Why *w) {
  *d = (Data){.graph = g, .batch = p->batch};
  d->source = nnrt_must_alloc((size_t)g->n_tensors * sizeof *d->source);
  bool has_batch = false;
  int64_t first_dim = 0;
  // An input with one position per sample has the batch as its first dimension.
  for (int i = 0; i < g->n_tensors; i++)
    if (g->tensors[i].role == NNRT_input) {
      const NnrtTensor *t = &g->tensors[i];
      d->source[d->n++].input = t;
      has_batch |= places_of_sample(t, p->batch) == 1;
      if (t->ndim > 0 && !t->every_step && !first_dim) first_dim = t->dim[0];
    }
  // A graph for evaluation may take smaller batches.
  if (!has_batch && first_dim) d->batch = first_dim;

  char input_flag[32], tokens_flag[32];
  snprintf(input_flag, sizeof input_flag, "%sinput", prefix);
  snprintf(tokens_flag, sizeof tokens_flag, "%stokens", prefix);
  if (!assign(d, input, input_flag, false, w) || !assign(d, tokens, tokens_flag, true, w))
    return false;
  for (int i = 0; i < d->n; i++) {
    Source *s = &d->source[i];
    const NnrtTensor *t = s->input;
    const char *flag = s->tokens ? tokens_flag : input_flag;
    if (!s->n_shards && t->unread) continue;
    if (!s->n_shards)
      return why(w, "no data for input '%s' %s\nhint: --%s %s=FILE.npy", t->name,
                 nnrt_tensor_text(t).at, input_flag, t->name);
    s->each = places_of_sample(t, d->batch);
    // The samples of the files are concatenated.
    for (int k = 0; k < s->n_shards; k++) {
      Shard *shard = &s->shard[k];
      bool open = s->tokens ? nnrt_tokens_open(&shard->npy, shard->path, w)
                            : nnrt_npy_open(&shard->npy, shard->path, w);
      if (!open) return why(w, "--%s %s=%s: %s", flag, t->name, shard->path, w->text);
      bool fits = s->tokens ? check_tokens(s, shard, flag, w) : check_samples(s, shard, flag, w);
      if (!fits) return false;
      shard->first = s->samples;
      s->samples += shard->samples;
    }
    // All inputs with samples have the same number of them.
    if (d->samples && s->samples && s->samples != d->samples)
      return why(w, "--%s %s=%s: this has %lld rows, an input before it %lld", flag, t->name,
                 s->shard[0].path, (long long)s->samples, (long long)d->samples);
    if (s->samples) d->samples = s->samples;
    if (s->tokens) d->length = t->dim[1];
  }
  return true;
}

void nnrt_data_say_converted(const Data *d, const char *prefix) {
  for (int i = 0; i < d->n; i++) {
    const Source *s = &d->source[i];
    int k = 0;
    // The first file of another type stands for all.
    while (k < s->n_shards && s->shard[k].npy.dtype == NNRT_f32)
      k++;
    if (s->input->dtype == NNRT_f32 && k < s->n_shards)
      nnrt_say_note("--%sinput %s=%s: the file's %s becomes the input's f32", prefix,
                    s->input->name, s->shard[k].path, nnrt_dtype_name(s->shard[k].npy.dtype));
  }
}

static int64_t integer_at(const uint8_t *p, NnrtDtype t, bool swapped) {
  uint16_t u16;
  uint32_t u32;
  uint64_t u64;
  // Unaligned: samples of a file begin anywhere.
  switch (nnrt_dtype_size(t)) {
  case 1: return *p;
  case 2: memcpy(&u16, p, 2); return swapped ? __builtin_bswap16(u16) : u16;
  case 4:
    memcpy(&u32, p, 4);
    u32 = swapped ? __builtin_bswap32(u32) : u32;
    return t == NNRT_i32 ? (int32_t)u32 : (int64_t)u32;
  }
  memcpy(&u64, p, 8);
  return (int64_t)(swapped ? __builtin_bswap64(u64) : u64);
}

static float float_at(const uint8_t *p, NnrtDtype t, bool swapped) {
  _Alignas(8) uint8_t x[8] = {0};
  int64_t size = nnrt_dtype_size(t);
  // The bytes are copied into an aligned element, reversed if need be.
  for (int64_t i = 0; i < size; i++)
    x[i] = p[swapped ? size - 1 - i : i];
  return (float)nnrt_element_at(x, t, 0);
}

// Converts n elements of a file to the input's type, if it differs: see converts().
static bool convert(char *to, const NnrtTensor *input, const Shard *s, const uint8_t *from,
                    int64_t n, Why *w) {
  NnrtDtype type = input->dtype;
  int64_t size = nnrt_dtype_size(type), step = nnrt_dtype_size(s->npy.dtype);
  // The same type in the other byte order.
  if (s->npy.dtype == type) {
    for (int64_t i = 0; i < n; i++)
      for (int64_t byte = 0; byte < size; byte++)
        to[i * size + byte] = (char)from[(i + 1) * size - 1 - byte];
  } else if (type == NNRT_f32) {
    for (int64_t i = 0; i < n; i++)
      ((float *)(void *)to)[i] = float_at(from + i * step, s->npy.dtype, s->npy.swapped);
  } else {
    // Labels and tokens must fit the type of the input.
    for (int64_t i = 0; i < n; i++) {
      int64_t x = integer_at(from + i * step, s->npy.dtype, s->npy.swapped);
      if (type == NNRT_i32 && x != (int32_t)x)
        return why(w, "'%s': %lld does not fit input '%s' of type i32", s->path, (long long)x,
                   input->name);
      if (type == NNRT_i32)
        ((int32_t *)(void *)to)[i] = (int32_t)x;
      else
        ((int64_t *)(void *)to)[i] = x;
    }
  }
  return true;
}

static bool put_elements(NnrtRank *r, char *to, const NnrtTensor *input, const Shard *s,
                         const uint8_t *from, int64_t n, Why *w) {
  enum { BLOCK = 1024 };
  _Alignas(8) char block[BLOCK * 8];
  int64_t to_size = nnrt_dtype_size(input->dtype), from_size = nnrt_dtype_size(s->npy.dtype);
  if (s->npy.dtype == input->dtype && !s->npy.swapped) {
    nnrt_device_put(r, to, from, n * to_size);
    return true;
  }
  // Other types are converted in blocks that stay in the cache.
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t m = n - at < BLOCK ? n - at : BLOCK;
    if (!convert(block, input, s, from + at * from_size, m, w)) return false;
    nnrt_device_put(r, to + at * to_size, block, m * to_size);
  }
  return true;
}

int64_t nnrt_samples_read(const Data *d, const DataOrder *order, int64_t step) {
  return order->read + (step - order->first) * d->batch;
}

Data nnrt_data_samples(const Data *d, int64_t first, int64_t n) {
  Data part = *d;
  part.samples = n;
  part.source = nnrt_must_alloc((size_t)d->n * sizeof *part.source);
  memcpy(part.source, d->source, (size_t)d->n * sizeof *part.source);
  for (int i = 0; i < d->n; i++) {
    Source *s = &part.source[i];
    if (!s->samples) continue;
    // The files stay open; only the range of samples is narrower.
    s->skip += first;
    s->samples = n;
  }
  return part;
}

// A position along dimension 0 of a source, in its file.
typedef struct Place {
  const Shard *shard;
  int64_t sample; // in the shard
  const uint8_t *at;
} Place;

// Finds position `i` of the batch.
static Place find_place(const NnrtFed *fed, const Source *s, int64_t i) {
  const DataOrder *order = fed->order;
  // The sample is a function of the number of reads before it: every rank computes the same.
  int64_t sample = 0;
  if (s->samples) {
    int64_t read = nnrt_samples_read(fed->data, order, fed->step) + i / s->each;
    sample = read % s->samples;
    if (order->shuffle)
      sample = nnrt_shuffled(sample, s->samples, order->shuffle_seed, read / s->samples);
  }
  // Files are in the order of their first samples: a binary search for the one that holds it.
  int64_t wanted = s->skip + sample;
  int low = 0, high = s->n_shards; // the result is one of low … high - 1
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    *(s->shard[middle].first <= wanted ? &low : &high) = middle;
  }
  const Shard *shard = &s->shard[low];
  Place place = {.shard = shard, .sample = wanted - shard->first};
  place.at = shard->npy.data + place.sample * shard->sample_bytes;
  // Several positions of an input may belong to one sample.
  if (s->samples) place.at += i % s->each * (shard->sample_bytes / s->each);
  return place;
}

bool nnrt_data_feed(const NnrtFed *fed, NnrtRank *r, Why *w) {
  for (int k = 0; k < fed->data->n; k++) {
    const Source *s = &fed->data->source[k];
    const NnrtTensor *t = s->input;
    Part part;
    if (!s->n_shards || !nnrt_part_here(r, t, &part)) continue;
    // A pipeline has a slot per micro-batch in flight.
    char *to = r->slab + t->offset + (t->slots ? r->micro % t->slots * t->stride : 0);
    int64_t first_dim = s->samples ? 1 : 0; // the dimensions from here on belong to one sample
    Runs runs = nnrt_part_runs(t->ndim - (int)first_dim, t->dim + first_dim, part.start + first_dim,
                               part.size + first_dim);
    int64_t places = s->samples ? part.size[0] : 1;
    int64_t to_size = nnrt_dtype_size(t->dtype);
    // Positions may be in different files, and within a position the shard is runs of elements.
    for (int64_t i = 0; i < places; i++) {
      Place place = find_place(fed, s, s->samples ? part.start[0] + i : 0);
      int64_t from_size = nnrt_dtype_size(place.shard->npy.dtype);
      for (int64_t j = 0; j < runs.n; j++) {
        const uint8_t *from = place.at + nnrt_run_start(&runs, j) * from_size;
        if (!put_elements(r, to, t, place.shard, from, runs.length, w)) return false;
        to += runs.length * to_size;
      }
    }
  }
  return true;
}

// Adds a note with the first position in the batch that holds the integer.
static char *add_first(char *notes, const NnrtFed *fed, const Source *s, int64_t value) {
  const NnrtTensor *t = s->input;
  int64_t n = 1; // elements of a position
  for (int i = s->samples ? 1 : 0; i < t->ndim; i++)
    n *= t->dim[i];
  for (int64_t i = 0; i < (s->samples ? fed->data->batch * s->each : 1); i++) {
    Place place = find_place(fed, s, i);
    const Npy *npy = &place.shard->npy;
    int64_t size = nnrt_dtype_size(npy->dtype), k = 0;
    // The value was found on the device: search the samples of this batch again.
    while (k < n && integer_at(place.at + k * size, npy->dtype, npy->swapped) != value)
      k++;
    if (k == n) continue;
    // Token files have no samples of their own: report the index of the token.
    if (s->tokens)
      return nnrt_must_append(notes, "\nnote: in '%s', token %lld of '%s' is %lld", t->name,
                              (long long)((place.at - npy->data) / size + k), place.shard->path,
                              (long long)value);
    return nnrt_must_append(notes, "\nnote: in '%s', row %lld of '%s' has %lld", t->name,
                            (long long)place.sample, place.shard->path, (long long)value);
  }
  return notes;
}

char *nnrt_data_find(const NnrtFed *fed, int64_t value) {
  char *notes = nnrt_must_append(NULL, "%s", "");
  for (int i = 0; fed && i < fed->data->n; i++) {
    const Source *s = &fed->data->source[i];
    if (s->n_shards && s->input->dtype != NNRT_f32) notes = add_first(notes, fed, s, value);
  }
  return notes;
}
