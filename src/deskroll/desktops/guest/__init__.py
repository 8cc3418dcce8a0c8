"""The guest protocol: a server that runs inside a desktop, and the client that is the one async `Desktop`.

settings.py   what a guest has to know before it starts
session.py    the parts of an X session: started, checked, named when one dies
machine.py    one desktop as the routes see it: look, act, settle, step
processes.py  programs that run in the desktop, with time and output limits
files.py      its files
server.py     the HTTP application: token, errors, routes
routes/       OSWorld's endpoints and ours, a file for each group
main.py       the guest process
client.py     speaks all of it; stock.py speaks to a guest that has only OSWorld's endpoints
"""
