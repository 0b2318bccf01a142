// What the devices are and how they are connected, for those who choose between plans.
//
//     h100:4x8         four nodes of eight H100s: devices 0-7 are node 0, 8-15 node 1, …
//     h100             as many nodes as the device numbers in use ask for, up to 4096 devices
//     mine.lua         a file that returns a table; see cluster.c
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

typedef struct Cluster {
  const char *name;
  int nodes, per_node, nics; // nics: of a node
  Link inside, across;
  double start;                   // seconds until a primitive begins
  double memory;                  // bytes of a device; this and below: 0 where not known
  double memory_speed, f32, half; // of a device: bytes/s, and FLOP/s in f32 and in 16 bits
  double launch;                  // seconds of a kernel, however small
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
// Which of all adapters the device uses.
static inline int cluster_nic(const Cluster *c, int device) {
  int within = device % c->per_node;
  return cluster_node(c, device) * c->nics + (int)((long)within * c->nics / c->per_node);
}

#endif
