#!/bin/bash
# What Kubernetes starts in a container of the image. Spark names `executor` and, in cluster mode,
# `driver`, with the variables of its own image; all else is a command.
set -o errexit
case "$1" in
executor)
    options=()
    for ((number = 0; ; number++)); do
        name=SPARK_JAVA_OPT_$number
        [ -v "$name" ] || break
        options+=("${!name}")
    done
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
driver)
    exec spark-submit --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "${@:2}"
    ;;
*)
    exec "$@"
    ;;
esac
