// Bounds of a point: seconds that no plan of these numbers can be below, and bytes that a rank has
// all the time. Each term is a field, so that a report can say which one binds.
//
//     GPT-3 175B, 1,024 H200s, pp_zb_h1=16,zero1=16,sp=4 in 64 micro-batches
//         compute   products and attention, divided among all ranks (least_work.h)       2,215 ms
//         fill      stages wait for each other                                              83 ms
//         after     sums of gradients and updates, after the last micro-batch               96 ms
//         traffic   sums of gradients and gathers of weights in the loop, of ZeRO-2 and 3
//
// Why they hold: a product is computed at least once, and its parts take their share of the flops
// at the speed of their size at least; the slowest stage does at least the mean. Sums after the
// loop start when their stage has done its last micro-batch, and carry the bytes of all gradients
// over the adapters of a node, or the links of its devices. Weights and states are divided among
// the ranks of a stage that do not replicate them: those of experts among expert ranks, on which
// all others are replicated, as on context ranks. States in host memory are copied to the device
// after the last micro-batch; if those of as few layers as fit are, it may be none or all of them.
//
// Bytes of GPT-3 175B on 8 ranks, if states stay on the device, or are offloaded:
//
//     any plan           263 GB      44 GB     each weight and state is on one rank at least
//     dp               2,103 GB     351 GB
//     sp, zero3          263 GB      44 GB
//
// No other program of a plan makes weights or states smaller: recomputation and swap free
// activations. Trained weights stay on the device unless it has copies of them in 16 bits.

#ifndef BOUNDS_H
#define BOUNDS_H

#include "point.h"
#include "step_work.h"

typedef struct Bound {
  double compute, fill, after; // seconds, one after the other
  double traffic;              // seconds of collectives beside these, but `after`
  double seconds;              // of a step: no plan is below
  double lasting;              // bytes of the rank with the most
  double gradients;            // of these: sums over micro-batches that replicas do not divide
} Bound;

// The step's work divided as the point says. Devices do not differ.
Bound bound_find(const StepWork *w, const Cluster *c, const Point *p);

// The part of the bytes or elements of all weights that are not replicated on expert ranks, summed
// up with those of one rank's experts.
double own_weights(const StepWork *w, const Point *p, double all);

// The seconds of a reduce_scatter of all gradients of `bytes` over the ranks that replicate them,
// if one stage has all of them.
double gradient_seconds(const StepWork *w, const Cluster *c, const Point *p, double bytes);

// The bytes of a rank that its weights and states take at least under any plan, in several
// micro-batches (`slices`) also its sums of gradients. `offloads`: states are in host memory, and
// of weights only the 16-bit copies that products read are on the device.
double least_bytes(const StepWork *w, int64_t ranks, double slices, bool offloads);
// The same of the rank with the most under a plan of these numbers, with its summed gradients.
double least_point_bytes(const StepWork *w, const Point *p, bool offloads);
// The seconds in which a rank's bytes in host memory are copied to the device, or back, or updated
// there.
double host_seconds(const Cluster *c, const Point *p, double bytes);
// The seconds of a copy of so many bytes between a rank and host memory: of activations.
double copy_seconds(const Cluster *c, const Point *p, double bytes);

// The name of the largest term.
const char *bound_binds(const Bound *b);

// The seconds of the bytes of a reduce_scatter or an all_gather of `bytes` in a ring of `n` ranks,
// `stride` apart; all devices of a node take part in such rings. Without latencies.
double ring_seconds(const Cluster *c, double bytes, int n, int stride);

#endif
