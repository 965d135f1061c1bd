{{- define "beam.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "beam.labels" -}}
app.kubernetes.io/name: beam-spark-runner
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "beam.selector" -}}
app.kubernetes.io/name: beam-spark-runner
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "beam.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "beam.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "beam.environment" -}}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Folders that can be written, since the root file system cannot be. */}}
{{- define "beam.mounts" -}}
- {name: scratch, mountPath: /tmp, subPath: tmp}
- {name: scratch, mountPath: /work, subPath: work}
{{- if not .Values.storage.url }}
- {name: shared, mountPath: {{ .Values.storage.mountPath }}}
{{- end }}
{{- end }}

{{- define "beam.volumes" -}}
- name: scratch
  emptyDir: {sizeLimit: {{ .Values.scratchSize }}}
{{- if not .Values.storage.url }}
- name: shared
  persistentVolumeClaim: {claimName: {{ .Values.storage.existingClaim | default (printf "%s-shared" (include "beam.name" .)) }}}
{{- end }}
{{- end }}

{{- define "beam.storage" -}}
{{ .Values.storage.url | default .Values.storage.mountPath | trimSuffix "/" }}
{{- end }}

{{- /* The variables to which options of the driver refer. */}}
{{- define "beam.driverEnvironment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- include "beam.environment" . }}
{{- end }}

{{- /* Options of drivers. Arguments: the root, the image of executors. */}}
{{- define "beam.driverOptions" -}}
{{- $root := index . 0 }}
{{- $conf := dict
  "spark.driver.host" "$(POD_IP)"
  "spark.driver.bindAddress" "$(POD_IP)"
  "spark.driver.memory" $root.Values.spark.driverMemory
  "spark.executor.instances" $root.Values.executors.instances
  "spark.executor.cores" $root.Values.executors.cores
  "spark.executor.memory" $root.Values.executors.memory
  "spark.executor.memoryOverhead" $root.Values.executors.memoryOverhead
  "spark.kubernetes.namespace" $root.Release.Namespace
  "spark.kubernetes.container.image" (index . 1)
  "spark.kubernetes.container.image.pullPolicy" $root.Values.image.pullPolicy
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" (include "beam.name" $root))
  "spark.kubernetes.executor.podTemplateFile" "/etc/beam/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.executor.disableConfigMap" "true"
  "spark.kubernetes.driver.ownPersistentVolumeClaim" "false"
  "spark.kubernetes.driver.reusePersistentVolumeClaim" "false"
  "spark.kubernetes.driver.service.deleteOnTermination" "false"
  "spark.python.daemon.module" "beam_spark_runner.spark.worker.daemon"
}}
{{- with $root.Values.executors.cpuRequest }}
{{- $_ := set $conf "spark.kubernetes.executor.request.cores" . }}
{{- end }}
{{- with $root.Values.executors.cpuLimit }}
{{- $_ := set $conf "spark.kubernetes.executor.limit.cores" . }}
{{- end }}
{{- $conf = merge (deepCopy $root.Values.spark.conf) $conf }}
- --spark_master_url=k8s://https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)
- --temp_location={{ include "beam.storage" $root }}/temp
- --metrics_port=9108
- --metrics_host=0.0.0.0
{{- range $key, $value := $conf }}
- {{ printf "--spark_conf=%s=%v" $key $value | quote }}
{{- end }}
{{- end }}

{{- /* What pods of drivers have in common. Arguments: the root, the component. */}}
{{- define "beam.driverPod" -}}
{{- $root := index . 0 }}
metadata:
  labels:
    {{- include "beam.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ index . 1 }}
    beam-spark-runner/serves-metrics: "true"
  annotations:
    # A template of executors is read once, when Spark starts.
    beam-spark-runner/executor-template: {{ include "beam.executorPod" $root | sha256sum }}
{{- end }}

{{- define "beam.driverSpec" -}}
serviceAccountName: {{ include "beam.name" . }}-driver
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
terminationGracePeriodSeconds: 60
{{- include "beam.pullSecrets" . }}
{{- end }}

{{- define "beam.driverVolumes" -}}
{{ include "beam.volumes" . }}
- name: settings
  configMap: {name: {{ include "beam.name" . }}-executor}
{{- end }}

{{- define "beam.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  timeoutSeconds: 10
{{- end }}

{{- define "beam.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "beam.labels" . | nindent 4 }}
    app.kubernetes.io/component: executor
spec:
  serviceAccountName: {{ include "beam.name" . }}-executor
  automountServiceAccountToken: false
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- include "beam.pullSecrets" . | nindent 2 }}
  {{- with .Values.executors.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.executors.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.goHarnesses.enabled }}
  initContainers:
    # It runs as long as the executor does, which reaches it at localhost:50000.
    - name: go-harnesses
      image: {{ .Values.goHarnesses.image }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      restartPolicy: Always
      args: [--worker_pool]
      workingDir: /tmp
      env:
        # Go looks up the user, which the image does not have.
        - {name: USER, value: beam}
        - {name: HOME, value: /tmp}
        {{- include "beam.environment" . | nindent 8 }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      resources:
        {{- toYaml .Values.goHarnesses.resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: scratch, mountPath: /tmp, subPath: go}
        {{- if not .Values.storage.url }}
        - {name: shared, mountPath: {{ .Values.storage.mountPath }}}
        {{- end }}
  {{- end }}
  containers:
    - name: executor
      {{- if .Values.env }}
      env:
        {{- include "beam.environment" . | nindent 8 }}
      {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "beam.mounts" . | nindent 8 }}
  volumes:
    {{- include "beam.volumes" . | nindent 4 }}
{{- end }}
