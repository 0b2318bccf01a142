// Steps on a gpu: calls recorded once and replayed, answers that come later, and marks of time.
//
// A call of a kernel costs the host some microseconds, and a small model's kernels take no longer.
// So a piece of a graph is called as it is written the first time, when libraries choose, compile
// and take memory; the second time the calls are recorded into a CUDA graph; and from then on that
// is replayed, which is one call.  Streams that collectives went to meanwhile have to come back
// before the recording ends, and so before every piece's end.
//
// Not recorded are: a traced step, for its marks; ranks that meet in this process, since one would
// wait in the gpu for another that has not come; and where CUDA_LAUNCH_BLOCKING asks for it.
//
// Where CUDA does not make a graph of what was recorded, steps are called every time.  A library's
// call that refuses to be recorded is another thing: it leaves the rank in the middle of its
// operations, and so ends the job, saying that CUDA_LAUNCH_BLOCKING=1 does without recording.
// Collectives that some ranks replay and others call do not match, so processes agree: on whether
// they record at all when they start, and right after a piece was recorded for the first time.

#include <stdlib.h>
#include <string.h>

#include "collectives.h"
#include "machine.h"
#include "plans.h"

// ---- pieces

static Recording *recording_of(NnrtDevice *d, const NnrtGraph *g, int piece) {
  for (int i = 0; i < d->n_recordings; i++)
    if (d->recording[i].graph == g && d->recording[i].piece == piece) return &d->recording[i];
  d->recording = realloc(d->recording, (size_t)(d->n_recordings + 1) * sizeof *d->recording);
  if (!d->recording) nnrt_must_alloc((size_t)-1);
  d->recording[d->n_recordings] = (Recording){.graph = g, .piece = piece};
  return &d->recording[d->n_recordings++];
}

static void call(NnrtRank *r, void (*work)(NnrtRank *r)) {
  work(r);
  MUST(r, nnrt_gpu_comm_join(r));
}

static int record(NnrtRank *r, Recording *rec, void (*work)(NnrtRank *r)) {
  NnrtGpu *g = &r->device->gpu;
  cudaGraph_t graph = NULL;
  int code = nnrt_cuda(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal),
                       "recording the step");
  if (code) return code;
  g->recording = true;
  nnrt_fail_hint("it failed while the step was recorded; CUDA_LAUNCH_BLOCKING=1 in the environment "
                 "does without recording");
  call(r, work);
  nnrt_fail_hint(NULL);
  g->recording = false;
  code = nnrt_cuda(cudaStreamEndCapture(g->stream, &graph), "recording the step");
  // Kernels of collectives keep the priority of the stream they went to.
  if (!code)
    code = nnrt_cuda(
        cudaGraphInstantiateWithFlags(&rec->run, graph, cudaGraphInstantiateFlagUseNodePriority),
        "making the step's graph");
  if (graph) cudaGraphDestroy(graph);
  if (code) rec->run = NULL;
  rec->scratch = g->scratch;
  return code;
}

// Records a piece for the first time; false when steps are called from now on, on every rank.
// Collective.
static bool record_first(NnrtRank *r, Recording *rec, void (*work)(NnrtRank *r)) {
  NnrtDevice *d = r->device;
  int64_t failed[2] = {0, record(r, rec, work) != 0};
  failed[0] = r->rank == 0 && failed[1];
  nnrt_comm_sum(r, failed, 2);
  rec->recorded = true;
  if (!failed[1]) return true;
  if (r->rank == 0)
    nnrt_say_note("steps are not recorded, and so may be slower: %s",
                  failed[0] ? nnrt_error_detail() : "another rank cannot");
  nnrt_error(NNRT_OK, "%s", "");
  cudaGetLastError();
  d->records = false;
  return false;
}

void nnrt_device_run(NnrtRank *r, int piece, void (*work)(NnrtRank *r)) {
  NnrtDevice *d = r->device;
  nnrt_gpu_flush(r);
  Recording *rec = recording_of(d, r->graph, piece);
  if (!rec->ran || !d->records || r->trace) {
    rec->ran = true;
    call(r, work);
    return;
  }
  // Another graph may have asked for more scratch since.
  if (rec->run && rec->scratch != d->gpu.scratch) {
    MUST(r, nnrt_cuda(cudaGraphExecDestroy(rec->run), "recording the step again"));
    rec->run = NULL;
  }
  if (!rec->recorded && !record_first(r, rec, work)) {
    call(r, work);
    return;
  }
  if (!rec->run) MUST(r, record(r, rec, work));
  MUST(r, nnrt_cuda(cudaGraphLaunch(rec->run, d->gpu.stream), "running the step's graph"));
}

int nnrt_device_depth(const NnrtRank *r) {
  return r->trace ? 0 : 1;
}

// ---- answers

void nnrt_device_ask(NnrtRank *r, int slot, const NnrtTensor *const *outputs) {
  NnrtDevice *d = r->device;
  Slot *s = &d->slot[slot];
  cudaStream_t stream = d->gpu.stream;
  s->step = r->step;
  s->graph = r->graph;
  if (!d->said_plans) atomic_store(&d->step, r->step);
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

bool nnrt_device_answer(NnrtRank *r, int slot, double *out_value) {
  NnrtDevice *d = r->device;
  Slot *s = &d->slot[slot];
  int code = nnrt_cuda(cudaEventSynchronize(s->done), "the gpu");
  if (code) {
    r->step = s->step; // the one under way is another
    r->graph = s->graph;
    nnrt_fail_between(r, 0, r->graph->n_ops - 1, code);
  }
  const NnrtFinding *f = &s->report->finding;
  if (f->code && !d->found.code) {
    d->found = *f;
    d->found_graph = s->graph;
    d->found_step = s->step;
  }
  atomic_store(&d->step, s->step + 1);
  if (!d->said_plans) nnrt_plans_say(r->rank);
  d->said_plans = true;
  for (int i = 0; i < NNRT_ANSWERS; i++)
    if (s->wanted[i]) out_value[i] = nnrt_element_at(s->report->value[i], s->dtype[i], 0);
  return !d->found.code;
}

void nnrt_device_say_found(NnrtRank *r) {
  const NnrtDevice *d = r->device;
  const NnrtFinding *f = &d->found;
  NnrtRank then = *r; // a later step is under way
  then.step = d->found_step;
  then.graph = d->found_graph;
  nnrt_error(f->code,
             f->kind == FOUND_label ? "label %lld of row %lld is not in %lld..%lld"
                                    : "index %lld (number %lld) is not in %lld..%lld",
             f->value, f->place, f->least, f->limit - 1);
  nnrt_say_failed(&then, f->op, f->code);
}

// ---- marks: events, and one from which all are counted

static void make_event(NnrtRank *r, cudaEvent_t *out) {
  MUST(r, nnrt_cuda(cudaEventCreateWithFlags(out, cudaEventDefault), "making an event"));
}

int64_t nnrt_device_mark(NnrtRank *r, bool comm) {
  NnrtDevice *d = r->device;
  if (!d->zero) make_event(r, &d->zero);
  if (!d->zero_set) {
    d->zero_set = true;
    MUST(r, nnrt_cuda(cudaEventRecord(d->zero, d->gpu.stream), "recording an event"));
    MUST(r, nnrt_cuda(cudaEventSynchronize(d->zero), "waiting for an event"));
    d->zero_us = nnrt_now_us();
  }
  if (d->n_marks == d->marks_room) {
    int room = d->marks_room ? 2 * d->marks_room : 1024;
    d->mark = realloc(d->mark, (size_t)room * sizeof *d->mark);
    if (!d->mark) nnrt_must_alloc((size_t)-1);
    for (; d->marks_room < room; d->marks_room++)
      make_event(r, &d->mark[d->marks_room]);
  }
  MUST(r, nnrt_cuda(cudaEventRecord(d->mark[d->n_marks], comm ? d->gpu.comm : d->gpu.stream),
                    "recording an event"));
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
  // CUDA says how long ago in a float, which has microseconds for some seconds only.
  d->zero_set = nnrt_now_us() - d->zero_us < 4e6;
}
