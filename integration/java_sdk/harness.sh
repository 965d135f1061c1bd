#!/bin/sh
# Java's SDK harness as a process: harness.sh CLASS_PATH, then the flags of Beam's boot programs.
# FnHarness itself takes environment variables.
class_path=$1
shift
for flag in "$@"; do
  value=${flag#*=}
  case $flag in
    --id=*) export HARNESS_ID="$value" ;;
    --logging_endpoint=*) export LOGGING_API_SERVICE_DESCRIPTOR="url: \"$value\"" ;;
    --control_endpoint=*) export CONTROL_API_SERVICE_DESCRIPTOR="url: \"$value\"" ;;
  esac
done
exec java -Xmx1g -XX:TieredStopAtLevel=1 -cp "$class_path" org.apache.beam.fn.harness.FnHarness
