"""The number of ranks that share the work under the chosen plan, and under the fastest:  sharing.py SUMMARY.json"""

import json
import sys

plans = [c for c in json.load(open(sys.argv[1]))["candidates"] if c["fits"]]
print("taken:", next(c["ranks_sharing"] for c in plans if c["chosen"]), "ranks share the work")
print("fastest:", min(plans, key=lambda c: c["step_ms"])["ranks_sharing"], "ranks do")
