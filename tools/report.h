// --report: one page for people, on a plan and its prediction.
//
//     report.c            the page: the request, the prediction, the alternatives, the diffs
//     report_graph.c      the ops of the model, blocks once, with the layouts of values
//     report_pictures.c   timelines of the ranks and of their memory
//     report_traffic.c    transfers between ranks
//     report.html         the frame of the page, and its style

#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "cost/timeline.h"
#include "summary.h"

typedef struct Report {
  const char *model, *plan; // as the user called them; no plan: ""
  const Module *m;
  const Summary *seen;
  const StepTimeline *timeline;
  const LaneMemory *memory; // or NULL
  const LaneMemory *host;   // of host memory; NULL: none is used
  const char *diffs;        // changes by passes: unified diffs, one after the other
  const char *counts;       // their figures, a line each: "raise: 12 attention"
} Report;

const char *report_text(Arena *a, const Report *r);

// -- Shared by the files of the report ---------------------------------------------------------

extern const char report_html[];

void html_add(StrBuf *b, const char *text); // as text: < becomes &lt;
// "1.25 ms", "3.1 GB"
const char *seconds_text(Arena *a, double seconds);
const char *bytes_text(Arena *a, double bytes);
// "rank 3", "ranks 0-63"
const char *lane_text(Arena *a, const StepLane *lane);

void report_graph(StrBuf *b, const Report *r);
void report_timeline(StrBuf *b, const Report *r);
void report_memory(StrBuf *b, const Report *r);
void report_traffic(StrBuf *b, const Report *r);

#endif
