// Clusters by name, see clusters.def; and from a file in Lua, which returns
//
//     return {
//       nodes = 2, per_node = 8, nics = 4,                  -- 1, needed, 1
//       inside = { alpha = 0.6e-6, beta = 1 / 150e9 },      -- seconds, seconds of a byte; needed
//       across = { alpha = 2.7e-6, beta = 1 / 12.5e9 },     -- of an adapter; needed with 2 nodes
//       start = 6.6e-6,                                     -- seconds until a primitive begins; 0
//       memory = 32e9, memory_speed = 900e9,                -- bytes, bytes/s; not known
//       f32 = 15.7e12, half = 125e12,                       -- FLOP/s; not known
//       launch = 2e-6,                                      -- seconds of a kernel; 0
//       devices = {                                         -- those that are not so; none
//         { from = 8, to = 15, memory = 16e9, f32 = 8e12 }, -- what it leaves out is as above
//       },
//     }
//
// What is behind the dashes is what a field is when the file leaves it out.

#include "cluster.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lua_file.h"

// A row's name is written with '-' for '_'.
#define CLUSTER(name_, node, nics_, in_s, in_gb, across_s, across_gb, start_, gb, gb_s, f32_,      \
                half_, launch_)                                                                    \
  {.name = #name_,                                                                                 \
   .per_node = node,                                                                               \
   .nics = nics_,                                                                                  \
   .inside = {in_s, 1e-9 / (in_gb)},                                                               \
   .across = {across_s, 1e-9 / (across_gb)},                                                       \
   .start = start_,                                                                                \
   .memory = (gb)*1e9,                                                                             \
   .memory_speed = (gb_s)*1e9,                                                                     \
   .f32 = (f32_)*1e12,                                                                             \
   .half = (half_)*1e12,                                                                           \
   .launch = launch_},
static const Cluster table[] = {
#include "clusters.def"
};
enum { N_CLUSTERS = sizeof table / sizeof *table };

static const char *plain_name(Arena *a, const char *name) {
  char *s = arena_copy(a, name, strlen(name) + 1);
  for (char *p = s; *p; p++)
    if (*p == '_') *p = '-';
  return s;
}

static const char *all_names(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_CLUSTERS; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", plain_name(a, table[i].name));
  return b.at;
}

// "4x8" after the colon.
static bool read_sizes(const char *text, Cluster *c) {
  char *end;
  if (!isdigit((unsigned char)*text)) return false;
  long nodes = strtol(text, &end, 10);
  if (*end != 'x' || !isdigit((unsigned char)end[1])) return false;
  long per_node = strtol(end + 1, &end, 10);
  if (*end || nodes < 1 || per_node < 1 || nodes > CLUSTER_DEVICES ||
      per_node > CLUSTER_DEVICES / nodes)
    return false;
  c->nodes = (int)nodes;
  c->per_node = (int)per_node;
  if (c->nics > c->per_node) c->nics = c->per_node;
  return true;
}

// -- From a file -----------------------------------------------------------------------------

// A field of the file and what it may be.  Beyond its limits a number is a slip of the pen, and
// sums of costs would not be numbers.
typedef struct Field {
  const char *name;
  enum { COUNT, LINK, NUMBER, KINDS } kind;
  size_t at; // in a Cluster
  const char *unit;
  double least, most; // of a number; 0 is always legal
} Field;

#define FIELD(name, kind, ...)                                                                     \
  { #name, kind, offsetof(Cluster, name), __VA_ARGS__ }
#define SECONDS "seconds", 0, 1e3
static const Field fields[] = {
    FIELD(nodes, COUNT, "", 1, CLUSTER_DEVICES),
    FIELD(per_node, COUNT, "", 1, CLUSTER_DEVICES),
    FIELD(nics, COUNT, "", 1, CLUSTER_DEVICES),
    FIELD(inside, LINK, "", 0, 0),
    FIELD(across, LINK, "", 0, 0),
    FIELD(start, NUMBER, SECONDS),
    FIELD(memory, NUMBER, "bytes", 1, 1e18),
    FIELD(memory_speed, NUMBER, "bytes/s", 1e6, 1e18),
    FIELD(f32, NUMBER, "FLOP/s", 1e6, 1e21),
    FIELD(half, NUMBER, "FLOP/s", 1e6, 1e21),
    FIELD(launch, NUMBER, SECONDS),
    {"devices", KINDS, 0, "", 0, 0},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };
static const Field alpha_field = {"alpha", NUMBER, offsetof(Link, alpha), SECONDS};
static const Field beta_field = {"beta", NUMBER, offsetof(Link, beta), "seconds of a byte", 0, 1};

static const char *field_names(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < N_FIELDS; i++)
    strbuf_addf(&b, "%s%s", !i ? "" : i + 1 < N_FIELDS ? ", " : " and ", fields[i].name);
  return b.at;
}

static const LuaField *find_field(const LuaTable *t, const char *name) {
  for (int i = 0; i < t->n; i++)
    if (str_equal(t->at[i].name, name)) return &t->at[i];
  return NULL;
}

static bool read_number(const LuaField *f, const Field *as, double *out, Diag *d) {
  bool ok = f->kind == LUA_FILE_number && f->number >= 0 && f->number <= as->most;
  if (!ok || (f->number > 0 && f->number < as->least))
    return diag_error(d, f->loc, "'%s' must be a number of %s from %g to %g%s", f->name, as->unit,
                      as->least, as->most, as->least > 0 ? ", or 0 if it is not known" : "");
  *out = f->number;
  return true;
}

static bool read_count(const LuaField *f, const Field *as, int *out, Diag *d) {
  if (f->kind != LUA_FILE_number || f->number != floor(f->number) || f->number < as->least ||
      f->number > as->most)
    return diag_error(d, f->loc, "'%s' must be a whole number from %g to %g", f->name, as->least,
                      as->most);
  *out = (int)f->number;
  return true;
}

static bool read_link(const LuaField *f, Link *out, Diag *d) {
  const LuaField *alpha = NULL, *beta = NULL;
  if (f->kind == LUA_FILE_table) {
    alpha = find_field(f->table, "alpha");
    beta = find_field(f->table, "beta");
  }
  if (!alpha || !beta || f->table->n > 2)
    return diag_error(d, f->loc, "'%s' must be { alpha = SECONDS, beta = SECONDS OF A BYTE }",
                      f->name);
  bool ok = read_number(alpha, &alpha_field, &out->alpha, d);
  return read_number(beta, &beta_field, &out->beta, d) && ok;
}

static bool read_field(const LuaField *f, Cluster *c, Arena *a, Diag *d) {
  for (int i = 0; i < N_FIELDS; i++) {
    const Field *as = &fields[i];
    void *out = (char *)c + as->at;
    if (!str_equal(f->name, as->name)) continue;
    return as->kind == COUNT   ? read_count(f, as, out, d)
           : as->kind == LINK  ? read_link(f, out, d)
           : as->kind == KINDS ? true // when all else is known
                               : read_number(f, as, out, d);
  }
  diag_error(d, f->loc, "a cluster has no '%s'", f->name);
  diag_hint(d, "it has %s", field_names(a));
  return false;
}

// -- Devices that are not like the others --------------------------------------------------------

static const char kind_text[] = "{ from = FIRST, to = LAST, memory = BYTES }";

static const Field *of_device(const char *name) {
  for (int i = 0; i < N_FIELDS; i++)
    if (fields[i].at >= offsetof(Cluster, memory) && str_equal(name, fields[i].name))
      return &fields[i];
  return NULL;
}

// `is` has what devices are that are of no kind.
static bool read_kind_field(const LuaField *f, Cluster *is, DeviceKind *out, Diag *d) {
  const Field *as = of_device(f->name);
  const Field number = {f->name, COUNT, 0, "", 0, cluster_devices(is) - 1};
  if (str_equal(f->name, "from")) return read_count(f, &number, &out->from, d);
  if (str_equal(f->name, "to")) return read_count(f, &number, &out->to, d);
  if (as) return read_number(f, as, (double *)((char *)is + as->at), d);
  diag_error(d, f->loc, "some devices have no '%s' of their own", f->name);
  diag_hint(d, "they have from, to, memory, memory_speed, f32, half and launch");
  return false;
}

static bool read_kind(const LuaField *f, const Cluster *c, DeviceKind *out, Diag *d) {
  Cluster is = *c;
  *out = (DeviceKind){.from = -1, .to = -1};
  if (f->kind != LUA_FILE_table)
    return diag_error(d, f->loc, "%s of 'devices' must be %s", f->name, kind_text);
  bool ok = true;
  for (int i = 0; i < f->table->n; i++)
    ok = read_kind_field(&f->table->at[i], &is, out, d) && ok;
  out->is = cluster_least(&is);
  if (ok && (out->from < 0 || out->to < out->from))
    ok = diag_error(d, f->loc, "%s of 'devices' must say the first of them and the last: from, to",
                    f->name);
  return ok;
}

// What all devices have at least; `launch` is what a kernel takes at most.
static void find_least(Cluster *c) {
  Device least = cluster_device(c, 0);
  for (int i = 1; i < cluster_devices(c); i++) {
    Device x = cluster_device(c, i);
    least =
        (Device){fmin(x.memory, least.memory), fmin(x.memory_speed, least.memory_speed),
                 fmin(x.f32, least.f32), fmin(x.half, least.half), fmax(x.launch, least.launch)};
  }
  c->memory = least.memory;
  c->memory_speed = least.memory_speed;
  c->f32 = least.f32;
  c->half = least.half;
  c->launch = least.launch;
}

static bool read_kinds(const LuaField *f, Cluster *c, Arena *a, Diag *d) {
  if (f->kind != LUA_FILE_table)
    return diag_error(d, f->loc, "'devices' must be a list of %s", kind_text);
  DeviceKind *kind = arena_array(a, DeviceKind, f->table->n);
  bool ok = true;
  for (int i = 0; i < f->table->n; i++) {
    ok = read_kind(&f->table->at[i], c, &kind[i], d) && ok;
    for (int k = 0; ok && k < i; k++)
      if (kind[i].from <= kind[k].to && kind[k].from <= kind[i].to)
        ok = diag_error(d, f->loc, "devices %d to %d and %d to %d are partly the same",
                        kind[k].from, kind[k].to, kind[i].from, kind[i].to);
  }
  if (!ok || !f->table->n) return ok;
  c->others = cluster_least(c);
  c->kind = kind;
  c->n_kinds = f->table->n;
  find_least(c);
  return true;
}

// -- The file
// --------------------------------------------------------------------------------------

static const Cluster *read_file(Arena *a, const char *path, Diag *d) {
  const LuaTable *t = lua_file_read(a, path, d);
  if (!t) return NULL;
  const Loc *loc = loc_line(a, path, 0, 0);
  Cluster *c = arena_one(a, Cluster);
  *c = (Cluster){.name = str_copy(a, path), .nodes = 1, .nics = 1};
  bool ok = true;
  for (int i = 0; i < t->n; i++)
    ok = read_field(&t->at[i], c, a, d) && ok;
  if (!ok) return NULL;
  if (!c->per_node)
    ok = diag_error(d, loc, "'per_node' is missing, the number of devices of a node");
  if (!find_field(t, "inside"))
    ok = diag_error(d, loc, "'inside' is missing, the links inside a node");
  if (c->nodes > 1 && !find_field(t, "across"))
    ok = diag_error(d, loc, "'across' is missing, the links between nodes");
  if (ok && c->per_node > CLUSTER_DEVICES / c->nodes)
    ok = diag_error(d, find_field(t, "per_node")->loc, "these are more than %d devices",
                    CLUSTER_DEVICES);
  if (ok && c->nics > c->per_node)
    ok = diag_error(d, find_field(t, "nics")->loc, "a node has %d adapters for %d devices", c->nics,
                    c->per_node);
  const LuaField *devices = find_field(t, "devices");
  if (ok && devices) ok = read_kinds(devices, c, a, d);
  return ok ? c : NULL;
}

// -- Either ----------------------------------------------------------------------------------

const Cluster *cluster_read(Arena *a, const char *text, const char *option, Diag *d) {
  if (str_ends(text, ".lua")) return read_file(a, text, d);
  const char *colon = strchr(text, ':');
  size_t n = colon ? (size_t)(colon - text) : strlen(text);
  const char *name = str_copy_n(a, text, n);
  const Loc *loc = loc_line(a, option, 0, 0);
  for (int i = 0; i < N_CLUSTERS; i++) {
    if (!str_equal(name, plain_name(a, table[i].name))) continue;
    Cluster *c = arena_copy(a, &table[i], sizeof *c);
    c->name = str_copy(a, text);
    c->nodes = CLUSTER_UNSIZED / c->per_node; // unless it has a size
    if (colon && !read_sizes(colon + 1, c)) {
      diag_error(d, loc, "'%s' is no size of a cluster", colon + 1);
      diag_hint(d, "%s:NODESxPER_NODE, such as %s:4x8, with at most %d devices", name, name,
                CLUSTER_DEVICES);
      return NULL;
    }
    return c;
  }
  diag_error(d, loc, "there is no cluster '%s'", name);
  diag_hint(d, "there are %s; or a file, NAME.lua", all_names(a));
  return NULL;
}
