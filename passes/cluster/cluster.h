// What the devices are and how they are connected, for those who choose between plans.
//
//     h100:4x8         four nodes of eight H100s: devices 0-7 are node 0, 8-15 node 1, …
//     h100             as many nodes as the device numbers in use ask for, up to 4096 devices
//     mine.lua         a file that returns a table; see cluster_file.c
//
// Inside a node every device has its own link, in and out.  Between nodes there are adapters, which
// a node's devices share: device i of a node uses adapter i * nics / per_node.  A message of n
// bytes takes alpha + n * beta on the link that it crosses; messages that cross one link at the
// same time take their turns.
//
// Devices may differ in speed, memory and links (`devices` of a file).  A message leaves by the
// link of its sender and arrives by that of its receiver, and takes alpha and beta of the slower.

#ifndef CLUSTER_H
#define CLUSTER_H

#include <math.h>

#include "base/diag.h"

typedef struct Link {
  double alpha; // seconds of a message, however short
  double beta;  // seconds of a byte
} Link;

// What a device is; 0 where not known.
typedef struct Device {
  double memory;                  // bytes
  double memory_speed, f32, half; // bytes/s, and FLOP/s in f32 and in 16 bits
  double launch;                  // seconds of a kernel, however small
  double host;                    // bytes/s to host memory, and as much back
} Device;

// Devices that are not like the others.
typedef struct DeviceKind {
  int from, to; // both included
  Device is;
  Link inside, across; // their own, and those of the adapters that they use
} DeviceKind;

typedef struct Cluster {
  const char *name;
  int nodes, per_node, nics; // nics: of a node
  Link inside, across;       // of devices that are of no kind
  double start;              // seconds until a primitive begins
  // As in Device: what every device has at least.  Where all do the same, they wait for the
  // slowest.
  double memory, memory_speed, f32, half, launch, host;
  bool gpus;     // its devices are; of a file that is not known
  Device others; // where there are kinds: what devices are that are of none
  const DeviceKind *kind;
  int n_kinds;
  const int *kind_of; // by device, where there are kinds: 0, or 1 + which
  bool links_differ;  // of some kind, from those of others
} Cluster;

// At most; and of a cluster without a size, which has as many as anybody may name.
enum { CLUSTER_DEVICES = 32768, CLUSTER_UNSIZED = 4096 };

// `text` is NAME, NAME:NODESxPER_NODE or FILE.lua.  NULL, having reported why; messages are about
// `option`, such as "--cluster".
const Cluster *cluster_read(Arena *a, const char *text, const char *option, Diag *d);
bool cluster_is_file(const char *text); // or a name
const Cluster *cluster_read_file(Arena *a, const char *path, Diag *d);

// The same, but that what is sent takes no time to begin: as part of something larger, it does not.
const Cluster *cluster_without_starts(Arena *a, const Cluster *c);

// The least alpha and the least beta of all devices and, with more than one node, all adapters.
Link cluster_fastest_inside(const Cluster *c);
Link cluster_fastest_across(const Cluster *c);

static inline int cluster_devices(const Cluster *c) {
  return c->nodes * c->per_node;
}
static inline int cluster_node(const Cluster *c, int device) {
  return device / c->per_node;
}
// From 0: of those that are of no kind; else 1 + which.
static inline int cluster_kind(const Cluster *c, int device) {
  return c->n_kinds ? c->kind_of[device] : 0;
}
// What both have at least.
static inline Device device_least(Device a, Device b) {
  return (Device){fmin(a.memory, b.memory), fmin(a.memory_speed, b.memory_speed),
                  fmin(a.f32, b.f32),       fmin(a.half, b.half),
                  fmax(a.launch, b.launch), fmin(a.host, b.host)};
}
static inline Device cluster_least(const Cluster *c) {
  return (Device){c->memory, c->memory_speed, c->f32, c->half, c->launch, c->host};
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
// Which of all adapters the device uses.
static inline int cluster_nic(const Cluster *c, int device) {
  int within = device % c->per_node;
  return cluster_node(c, device) * c->nics + (int)((long)within * c->nics / c->per_node);
}

#endif
