# Plants a fault in a copy of a folder of --emit c, with sed, and prints the error about it:
#     program_fault.sh NNAOT-OPT FOLDER FILE.c SED-COMMAND [MODEL]
# FILE.c may be a pattern of several files.  FOLDER/planned.nn is the planned module, which is proved to compute MODEL.
set -e
rm -rf "$2.fault"
cp -r "$2" "$2.fault"
(cd "$2.fault" && sed -i -e "$4" $3)
if diff -r "$2" "$2.fault" > /dev/null; then
  echo "sed changed nothing: $4"
  exit 1
fi
if "$1" "$2/planned.nn" --check-program="$2.fault" ${5:+--prove="$5"} -o /dev/null 2>&1; then
  echo "nothing noticed: $4"
fi
