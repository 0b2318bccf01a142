// What the devices are and how they are connected, for those who choose between plans.
//
//     h100:4x8         four nodes of eight H100s: devices 0-7 are node 0, 8-15 node 1, …
//     h100             as many nodes as the device numbers in use ask for, up to 4096 devices
//     mine.lua         a file that returns a table; see cluster.c
//
// Devices may differ in speed and memory (`devices` of a file), but not in their links.
//
// Inside a node every device has its own link, in and out.  Between nodes there are adapters, which
// a node's devices share: device i of a node uses adapter i * nics / per_node.  A message of n
// bytes takes alpha + n * beta on the link that it crosses; messages that cross one link at the
// same time take their turns.

#ifndef CLUSTER_H
#define CLUSTER_H

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
} Device;

// Devices that are not like the others.
typedef struct DeviceKind {
  int from, to; // both included
  Device is;
} DeviceKind;

typedef struct Cluster {
  const char *name;
  int nodes, per_node, nics; // nics: of a node
  Link inside, across;
  double start; // seconds until a primitive begins
  // As in Device: what every device has at least.  Where all do the same, they wait for the
  // slowest.
  double memory, memory_speed, f32, half, launch;
  Device others; // where there are kinds: what devices are that are of none
  const DeviceKind *kind;
  int n_kinds;
} Cluster;

// At most; and of a cluster without a size, which has as many as anybody may name.
enum { CLUSTER_DEVICES = 32768, CLUSTER_UNSIZED = 4096 };

// `text` is NAME, NAME:NODESxPER_NODE or FILE.lua.  NULL, having reported why; messages are about
// `option`, such as "--cluster".
const Cluster *cluster_read(Arena *a, const char *text, const char *option, Diag *d);

static inline int cluster_devices(const Cluster *c) {
  return c->nodes * c->per_node;
}
static inline int cluster_node(const Cluster *c, int device) {
  return device / c->per_node;
}
// From 0: of those that are of no kind; else 1 + which.
static inline int cluster_kind(const Cluster *c, int device) {
  for (int i = 0; i < c->n_kinds; i++)
    if (c->kind[i].from <= device && device <= c->kind[i].to) return i + 1;
  return 0;
}
static inline Device cluster_least(const Cluster *c) {
  return (Device){c->memory, c->memory_speed, c->f32, c->half, c->launch};
}
static inline Device cluster_device(const Cluster *c, int device) {
  int kind = cluster_kind(c, device);
  return !c->n_kinds ? cluster_least(c) : kind ? c->kind[kind - 1].is : c->others;
}
// Which of all adapters the device uses.
static inline int cluster_nic(const Cluster *c, int device) {
  int within = device % c->per_node;
  return cluster_node(c, device) * c->nics + (int)((long)within * c->nics / c->per_node);
}

#endif
