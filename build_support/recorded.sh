# What `make recording` records: commands as a user types them, and what they write.
show() {
    printf '$ %s\n' "$1"
    sleep 1
    eval "$1"
}
show "python -m apache_beam.examples.wordcount --runner=SparkPortableRunner \\
    --input='docs/*.md' --output=out/counts"
show 'head -3 out/counts*'
sleep 3
