# A modem that speaks AT commands (3GPP TS 27.007), for real telephony services. Its line is a TCP port, whose number it prints, or
# the abstract Unix socket named on the command line. Orders on standard input change its calls:
#   ring NUMBER, answered, hold, hangup
import re
import socket
import sys
import threading

if len(sys.argv) > 1:
    server = socket.socket(socket.AF_UNIX)
    server.bind("\0" + sys.argv[1])
else:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
server.listen(4)
print(server.getsockname()[1], flush=True)

lock = threading.RLock()
lines = []  # open connections
calls = {}  # index: [direction, state, number], as +CLCC has them
answers = {
    "AT+GCAP": ["+GCAP: +CGSM"],
    "AT+CPIN?": ["+CPIN: READY"],
    "AT+CFUN?": ["+CFUN: 1"],
    "AT+CGMI": ["Test"],
    "AT+CGMM": ["Test"],
    "AT+CGMR": ["1"],
    "AT+CGSN": ["359150048062347"],
    "AT+CIMI": ["310150123456789"],
    "AT+CREG?": ['+CREG: 2,1,"00C3","08CA"'],
    "AT+CGREG?": ['+CGREG: 2,1,"00C3","08CA"'],
    "AT+COPS?": ['+COPS: 0,2,"26201"'],
}


def say(*texts):
    with lock:
        for line in lines:
            line.sendall("".join(f"\r\n{text}\r\n" for text in texts).encode())


def place(direction, state, number):
    calls[max(calls, default=0) + 1] = [direction, state, number]


def change(state, *former):
    for call in calls.values():
        if call[1] in former:
            call[1] = state


def answer(command):
    with lock:
        print(command, file=sys.stderr, flush=True)
        if command == "AT+CLCC":
            say(*[f'+CLCC: {i},{d},{s},0,0,"{n}",145' for i, (d, s, n) in sorted(calls.items())], "OK")
        elif command.startswith("AT+CRSM"):
            say("ERROR")
        elif dialled := re.match(r"ATD([0-9+*#]+)", command):
            place(0, 2, dialled[1])
            say("OK")
        elif command == "ATA":
            change(0, 4)
            say("OK")
        elif command in ("AT+CHUP", "ATH") or command.startswith("AT+CHLD=1"):
            calls.clear()
            say("OK")
        else:
            say(*answers.get(command, []), "OK")


def serve(line):
    buffer = b""
    while data := line.recv(4096):
        buffer += data
        while b"\r" in buffer:
            command, buffer = buffer.split(b"\r", 1)
            if command.strip():
                answer(command.strip().decode(errors="replace"))
    with lock:
        lines.remove(line)


def accept():
    while True:
        line, _ = server.accept()
        with lock:
            lines.append(line)
        threading.Thread(target=serve, args=(line,), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
for order in sys.stdin:
    with lock:
        match order.split():
            case ["ring", number]:
                place(1, 4, number)
                say("+CRING: VOICE", f'+CLIP: "{number}",145')
            case ["answered"]:
                change(0, 2, 3)
            case ["hold"]:
                change(1, 0)
            case ["hangup"]:
                calls.clear()
                say("NO CARRIER")
