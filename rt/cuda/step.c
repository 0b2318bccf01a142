// Steps on a GPU: captured once into CUDA graphs and replayed; asynchronous results; timestamps.
//
// A launch costs the host some microseconds, and the kernels of a small model take no longer.  So
// the first step runs call by call: libraries choose, compile and allocate.  Before the second step
// all pieces are captured, each into a CUDA graph.  From then on the graphs are replayed, with one
// call each.  Streams with collectives must join before the capture ends, and so before the end of
// each piece.  Moves that start in one piece and are waited for in another run between pieces,
// uncaptured.
//
// Some steps are not captured: traced steps, for their timestamps; steps of ranks that are threads
// of one process, since one would wait in the GPU for another that has not arrived; and all steps
// with CUDA_LAUNCH_BLOCKING.
//
// If CUDA cannot instantiate a captured graph, all steps run call by call.  A library call that
// refuses capture is different: it leaves the rank in the middle of its operations, so it ends the
// job, with a hint that CUDA_LAUNCH_BLOCKING=1 disables capture.  Collectives that some ranks
// replay and others call do not match.  So processes agree on capture at the start, and again after
// the first capture of a graph's pieces: once for all pieces, since ranks may have different
// numbers of them.

#include <stdlib.h>
#include <string.h>

#include "collectives.h"
#include "cudnn_plans.h"
#include "machine.h"

// ---- pieces

static Recordings *recordings_of(NnrtRank *r) {
  return &r->device->recordings[r->graph == &r->program->eval];
}

static Recording *recording_of(NnrtRank *r, int piece) {
  Recordings *all = recordings_of(r);
  // The number of pieces is not known before.
  if (piece >= all->n) {
    all->piece = realloc(all->piece, (size_t)(piece + 1) * sizeof *all->piece);
    if (!all->piece) nnrt_must_alloc((size_t)-1);
    memset(all->piece + all->n, 0, (size_t)(piece + 1 - all->n) * sizeof *all->piece);
    all->n = piece + 1;
  }
  return &all->piece[piece];
}

void nnrt_gpu_recordings_close(NnrtDevice *d) {
  for (int g = 0; g < 2; g++) {
    // The pieces of @train, then of @eval.
    for (int i = 0; i < d->recordings[g].n; i++)
      if (d->recordings[g].piece[i].run) cudaGraphExecDestroy(d->recordings[g].piece[i].run);
    free(d->recordings[g].piece);
  }
}

static void call(NnrtRank *r, void (*work)(NnrtRank *r)) {
  work(r);
  MUST(r, nnrt_gpu_comm_join(r));
}

static int record(NnrtRank *r, Recording *rec, void (*work)(NnrtRank *r)) {
  NnrtGpu *g = &r->device->gpu;
  GpuComm *c = r->device->comm;
  int64_t before = c ? c->n_ahead : 0;
  cudaGraph_t graph = NULL;
  int code = nnrt_cuda(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal),
                       "recording the step");
  if (code) return code;
  g->recording = true;
  nnrt_fail_hint("it failed while the step was recorded; CUDA_LAUNCH_BLOCKING=1 in the environment "
                 "does without recording");
  // Errors now leave the stream in capture, so the hint says how to run without it.
  call(r, work);
  nnrt_fail_hint(NULL);
  g->recording = false;
  code = nnrt_cuda(cudaStreamEndCapture(g->stream, &graph), "recording the step");
  // Kernels of collectives keep the priority of their stream.
  if (!code)
    code = nnrt_cuda(
        cudaGraphInstantiateWithFlags(&rec->run, graph, cudaGraphInstantiateFlagUseNodePriority),
        "making the step's graph");
  if (graph) cudaGraphDestroy(graph);
  if (code) rec->run = NULL;
  // The graph contains addresses in scratch.
  rec->scratch = g->scratch;
  rec->ahead = c && c->n_ahead > before;
  return code;
}

bool nnrt_device_begin(NnrtRank *r) {
  Recordings *all = recordings_of(r);
  nnrt_gpu_flush(r);
  // The second step is captured, or the first later one that is neither traced nor checked.
  bool now =
      all->ran && !all->recorded && r->device->records && !r->trace && !r->checks && !r->against;
  all->ran = true;
  all->recorded |= now;
  return now;
}

// One failure disables all.
void nnrt_device_record(NnrtRank *r, int piece, void (*work)(NnrtRank *r)) {
  Recordings *all = recordings_of(r);
  if (!all->failed) all->failed = record(r, recording_of(r, piece), work) != 0;
}

void nnrt_device_recorded(NnrtRank *r) {
  NnrtDevice *d = r->device;
  bool mine = recordings_of(r)->failed;
  int64_t failed[2] = {r->rank == 0 && mine, mine};
  nnrt_comm_sum(r, failed, 2);
  if (!failed[1]) return;
  // One rank's failure is all ranks' failure: collectives must match.
  if (r->rank == 0)
    nnrt_say_note("steps are not recorded, and so may be slower: %s",
                  failed[0] ? nnrt_error_detail() : "another rank cannot");
  // The error is not one of the step.
  nnrt_error(NNRT_OK, "%s", "");
  cudaGetLastError();
  d->records = false;
}

void nnrt_device_run(NnrtRank *r, int piece, void (*work)(NnrtRank *r)) {
  NnrtDevice *d = r->device;
  nnrt_gpu_flush(r);
  if (!recordings_of(r)->recorded || !d->records || r->trace || r->checks || r->against) {
    call(r, work);
    return;
  }
  Recording *rec = recording_of(r, piece);
  // Another graph may have enlarged scratch since.
  if (rec->run && rec->scratch != d->gpu.scratch) {
    MUST(r, nnrt_cuda(cudaGraphExecDestroy(rec->run), "recording the step again"));
    rec->run = NULL;
  }
  if (!rec->run) MUST(r, record(r, rec, work));
  if (rec->ahead) MUST(r, nnrt_gpu_moves_join(r));
  MUST(r, nnrt_cuda(cudaGraphLaunch(rec->run, d->gpu.stream), "running the step's graph"));
}

void nnrt_device_call(NnrtRank *r, void (*work)(NnrtRank *r)) {
  nnrt_gpu_flush(r);
  work(r);
}

int nnrt_device_depth(const NnrtRank *r) {
  return r->trace || r->checks || r->against ? 0 : 1;
}

// ---- results

void nnrt_device_ask(NnrtRank *r, int slot, const NnrtTensor *const *outputs) {
  NnrtDevice *d = r->device;
  Slot *s = &d->slot[slot];
  cudaStream_t stream = d->gpu.stream;
  s->step = r->step;
  s->graph = r->graph;
  MUST(r, nnrt_gpu_moves_join(r)); // completes all started moves
  if (!d->said_plans) atomic_store(&d->step, r->step);
  // Asynchronous copies: nnrt_device_answer waits for `done`.
  for (int i = 0; i < NNRT_ANSWERS; i++) {
    const NnrtTensor *t = outputs[i];
    s->wanted[i] = t != NULL;
    if (!t) continue;
    s->dtype[i] = t->dtype;
    MUST(r, nnrt_cuda(cudaMemcpyAsync(s->report->value[i], r->slab + t->offset,
                                      (size_t)nnrt_dtype_size(t->dtype), cudaMemcpyDeviceToHost,
                                      stream),
                      "copying from the gpu"));
  }
  MUST(r, nnrt_cuda(cudaMemcpyAsync(&s->report->finding, d->gpu.finding, sizeof s->report->finding,
                                    cudaMemcpyDeviceToHost, stream),
                    "copying from the gpu"));
  MUST(r, nnrt_cuda(cudaEventRecord(s->done, stream), "recording an event"));
}

bool nnrt_device_answer(NnrtRank *r, int slot, double *out_value, double *out_when) {
  NnrtDevice *d = r->device;
  Slot *s = &d->slot[slot];
  int code = nnrt_cuda(cudaEventSynchronize(s->done), "the gpu");
  if (code) {
    r->step = s->step; // not the current step
    r->graph = s->graph;
    nnrt_fail_between(r, 0, r->graph->n_ops - 1, code);
  }
  *out_when = nnrt_now_us();
  // Keeps the first finding; all ranks report it together.
  const NnrtFinding *f = &s->report->finding;
  if (f->code && !d->found.code) {
    d->found = *f;
    d->found_graph = s->graph;
    d->found_step = s->step;
  }
  atomic_store(&d->step, s->step + 1);
  // The first step has built all plans.
  if (!d->said_plans) nnrt_plans_say(r->rank);
  d->said_plans = true;
  for (int i = 0; i < NNRT_ANSWERS; i++)
    if (s->wanted[i]) out_value[i] = nnrt_element_at(s->report->value[i], s->dtype[i], 0);
  return !d->found.code;
}

void nnrt_device_say_found(NnrtRank *r) {
  const NnrtDevice *d = r->device;
  const NnrtFinding *f = &d->found;
  NnrtRank then = *r; // a later step is running
  then.step = d->found_step;
  then.graph = d->found_graph;
  // The rows that the step had been fed with, if they are still known.
  NnrtFed fed = r->fed ? *r->fed : (NnrtFed){0};
  if (then.graph == &r->program->train) fed.step = then.step;
  then.fed = fed.data && fed.data->graph == then.graph ? &fed : NULL;
  nnrt_found(f->kind, f->value, f->place, f->least, f->limit);
  nnrt_say_failed(&then, f->op, f->code);
}

// ---- timestamps: events, relative to one event

static void make_event(NnrtRank *r, cudaEvent_t *out) {
  MUST(r, nnrt_cuda(cudaEventCreateWithFlags(out, cudaEventDefault), "making an event"));
}

int64_t nnrt_device_mark(NnrtRank *r) {
  return nnrt_gpu_mark(r, r->device->gpu.stream);
}

int64_t nnrt_gpu_mark(NnrtRank *r, cudaStream_t stream) {
  NnrtDevice *d = r->device;
  if (!d->zero) make_event(r, &d->zero);
  // Elapsed times are relative to one event with a time known to the host.
  if (!d->zero_set) {
    d->zero_set = true;
    MUST(r, nnrt_cuda(cudaEventRecord(d->zero, d->gpu.stream), "recording an event"));
    MUST(r, nnrt_cuda(cudaEventSynchronize(d->zero), "waiting for an event"));
    d->zero_us = nnrt_now_us();
  }
  // Events are made once, and reused by later steps.
  if (d->n_marks == d->marks_room) {
    int room = d->marks_room ? 2 * d->marks_room : 1024;
    d->mark = realloc(d->mark, (size_t)room * sizeof *d->mark);
    if (!d->mark) nnrt_must_alloc((size_t)-1);
    for (; d->marks_room < room; d->marks_room++)
      make_event(r, &d->mark[d->marks_room]);
  }
  MUST(r, nnrt_cuda(cudaEventRecord(d->mark[d->n_marks], stream), "recording an event"));
  return d->n_marks++;
}

double nnrt_device_time(NnrtRank *r, int64_t mark) {
  NnrtDevice *d = r->device;
  float ms = 0;
  MUST(r, nnrt_cuda(cudaEventElapsedTime(&ms, d->zero, d->mark[mark]), "reading an event"));
  return d->zero_us + (double)ms * 1e3;
}

void nnrt_device_forget_marks(NnrtRank *r) {
  NnrtDevice *d = r->device;
  d->n_marks = 0;
  // CUDA returns elapsed time as a float, which resolves microseconds for some seconds only.
  d->zero_set = nnrt_now_us() - d->zero_us < 4e6;
}
