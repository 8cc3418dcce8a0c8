# Writes what is in the Downloads folder into report.txt.
ls ~/Downloads > ~/Documents/report.txt
echo 'Report written.'
