// The devices and the links between them, for the choice between plans.
//
//     h100:4x8         four nodes of eight H100s: devices 0-7 are node 0, 8-15 node 1, …
//     h100             as many nodes as the device numbers in use need, up to 4096 devices
//     h100-measured    products reach the measured share of the peak; collectives cost NCCL's choice
//     mine.lua         a file that returns a table; see cluster_file.c
//
// Inside a node every device has its own link, in and out.  Between nodes there are adapters, which
// a node's devices share: device i of a node uses adapter i * nics / per_node.  A message of n
// bytes takes alpha + n * beta on the link that it crosses; messages that cross one link at the
// same time are serialized.
//
// Devices may differ in speed, memory and links (`devices` of a file).  A message leaves by the
// link of its sender and arrives by that of its receiver, and takes alpha and beta of the slower.

#ifndef CLUSTER_H
#define CLUSTER_H

#include <math.h>

#include "base/diag.h"

typedef struct Link {
  double alpha; // latency: seconds per message
  double beta;  // seconds per byte
} Link;

// The speed that matrix products of this size were measured to reach; 0: not measured.
typedef struct ProductSpeed {
  double flops;     // of the product
  double f32, half; // FLOP/s
} ProductSpeed;

// Properties of a device; 0 if not known.
typedef struct Device {
  double memory;                  // bytes
  double memory_speed, f32, half; // bytes/s, and FLOP/s in f32 and in 16 bits
  double launch;                  // seconds of an empty kernel, beside its work
  double host;                    // bytes/s to host memory; the same back
  double half_efficiency;         // share of `half` that products reach; 0: all of it
  double attention_efficiency;    // share of `half` that fused attention reaches; 0: as products
  double dispatch;                // seconds in which the host issues a kernel; the least it takes
  double dollars;                 // the price of an hour
  const ProductSpeed *products;   // by size, ascending; they take the place of half_efficiency
  int n_products;
} Device;

// A cluster's own figures of an algorithm of collectives with a protocol, by NCCL's names.
typedef struct CollectiveWay {
  const char *algorithm, *protocol;
  double start, inside, across; // seconds at the start, and of hops; negative: NCCL's
  double share, far_share;      // of the links' bytes/s, in a node and across nodes; 0: NCCL's
} CollectiveWay;

// Devices with properties of their own.
typedef struct DeviceKind {
  int from, to; // both included
  Device is;
  Link inside, across; // their own, and those of their adapters
} DeviceKind;

typedef struct Cluster {
  const char *name;
  int nodes, per_node, nics; // nics: per node
  Link inside, across;       // of devices without a kind
  double start;              // seconds until a primitive begins
  // As in Device: the minimum over all devices; `launch` and `dispatch` are the maximum.  Ranks
  // that all do the same wait for the slowest.  `memory` is without the reserve.
  double memory, memory_speed, f32, half, launch, host, half_efficiency, attention_efficiency,
      dispatch, dollars;
  const ProductSpeed *products; // as in Device: the same of all
  int n_products;
  double reserve; // bytes of a device that no plan may use: the driver's, and buffers of libraries
  // The system that trains, if it is not nnaot's runtime; see docs/clusters.md.  0: nnaot's.
  double host_node;   // bytes/s that all devices of a node share to host memory; 0: no such limit
  double host_update; // bytes/s of offloaded states that a node's host updates; 0: devices do
  int prefetch;       // weights that are gathered ahead; 0: a gather blocks its rank
  int queues;         // of transfers; 0 and 2: moves to other segments have their own, 1: none
  bool nccl;          // collectives are priced by NCCL's choice (paths/nccl.h), not by the least
  bool nvls;          // switches of a node add up
  bool pat;           // NCCL has PAT: 2.23 or later
  const CollectiveWay *collectives; // figures that take the place of NCCL's
  int n_collectives;
  bool host_weights;   // offloaded weights stay in host memory in forward and backward, too
  bool half_comm;      // f32 values cross links in 16 bits
  bool blocking;       // each collective blocks its ranks; none runs beside computation
  bool gpus, cpus;     // its devices are GPUs, or processors; neither: a file that does not say
  bool predicted_only; // nnaot has no target for its gpus: plans are those of the cuda target
  Device others;       // if there are kinds: the properties of devices without one
  const DeviceKind *kind;
  int n_kinds;
  const int *kind_of; // by device, if there are kinds: 0, or 1 + index of the kind
  bool links_differ;  // a kind has links that differ from those of others
} Cluster;

// The most devices; and the devices of a cluster without a size: it has as many as may be named.
enum { CLUSTER_DEVICES = 32768, CLUSTER_UNSIZED = 4096 };

// Reads a cluster.  `text` is NAME, NAME:NODESxPER_NODE or FILE.lua.  Returns NULL after an error,
// which it has reported; messages name `option`, such as "--cluster".
const Cluster *cluster_read(Arena *a, const char *text, const char *option, Diag *d);
bool cluster_is_file(const char *text); // else it is a name
// The same without files; errors are at `loc`.
const Cluster *cluster_read_named(Arena *a, const char *text, const Loc *loc, Diag *d);
// Returns `text`, or the cluster of passes that are given none.  nnaot gives them the cluster of
// its target (targets.def).
static inline const char *cluster_or_default(const char *text) {
  return text ? text : "h100";
}
const Cluster *cluster_read_file(Arena *a, const char *path, Diag *d);

// A copy without latencies to start: a transfer that is part of a larger one does not start again.
const Cluster *cluster_without_starts(Arena *a, const Cluster *c);

// The FLOP/s of a product of this size: as measured, else half_efficiency of the peak in 16 bits,
// or the peak.
double device_speed(const Device *d, bool half, double flops);

// The price of an hour of all devices; 0: not known.
double cluster_dollars(const Cluster *c);

// The least alpha and the least beta of all devices and, with more than one node, all adapters.
Link cluster_fastest_inside(const Cluster *c);
Link cluster_fastest_across(const Cluster *c);

static inline int cluster_devices(const Cluster *c) {
  return c->nodes * c->per_node;
}
static inline int cluster_node(const Cluster *c, int device) {
  return device / c->per_node;
}
// 0 for a device without a kind; else 1 + index of the kind.
static inline int cluster_kind(const Cluster *c, int device) {
  return c->n_kinds ? c->kind_of[device] : 0;
}
// Of two shares, where 0 stands for a larger one.
static inline double share_least(double a, double b) {
  return a > 0 && b > 0 ? fmin(a, b) : fmax(a, b);
}
// The minimum of both devices, property by property; the maximum for `launch` and `dispatch`.
static inline Device device_least(Device a, Device b) {
  return (Device){fmin(a.memory, b.memory),
                  fmin(a.memory_speed, b.memory_speed),
                  fmin(a.f32, b.f32),
                  fmin(a.half, b.half),
                  fmax(a.launch, b.launch),
                  fmin(a.host, b.host),
                  share_least(a.half_efficiency, b.half_efficiency),
                  share_least(a.attention_efficiency, b.attention_efficiency),
                  fmax(a.dispatch, b.dispatch),
                  fmin(a.dollars, b.dollars),
                  a.products,
                  a.n_products};
}
static inline Device cluster_least(const Cluster *c) {
  return (Device){c->memory,
                  c->memory_speed,
                  c->f32,
                  c->half,
                  c->launch,
                  c->host,
                  c->half_efficiency,
                  c->attention_efficiency,
                  c->dispatch,
                  c->dollars,
                  c->products,
                  c->n_products};
}
static inline Device cluster_device(const Cluster *c, int device) {
  int kind = cluster_kind(c, device);
  return !c->n_kinds ? cluster_least(c) : kind ? c->kind[kind - 1].is : c->others;
}
// The device's own link, and that of the adapter that it uses.
static inline const Link *cluster_inside(const Cluster *c, int device) {
  int kind = cluster_kind(c, device);
  return kind ? &c->kind[kind - 1].inside : &c->inside;
}
static inline const Link *cluster_across(const Cluster *c, int device) {
  int kind = cluster_kind(c, device);
  return kind ? &c->kind[kind - 1].across : &c->across;
}
// The adapter of the device, numbered over all nodes.
static inline int cluster_nic(const Cluster *c, int device) {
  int within = device % c->per_node;
  return cluster_node(c, device) * c->nics + (int)((long)within * c->nics / c->per_node);
}

#endif
