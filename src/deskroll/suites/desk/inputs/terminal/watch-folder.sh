echo 'Watching the folder. Press Ctrl+C to stop.'
while :; do sleep 3600; done
