"""The scenario of nearby.sh: what two pttd find by Bluetooth, how long it takes, and that they talk as soon as there is a network: one that
Bluetooth makes, or a cable."""
import json
import socket
import subprocess
import sys
import time

failures = 0
CHANNEL = 'Crane 2'
# The adapters that carry Bluetooth's own network.
CLASSIC = {'host': '00:AA:01:00:00:02', 'visitor': '00:AA:01:01:00:03'}


def ctl(who, *arguments):
    command = ['pttctl', *arguments, '--bus', f'unix:path=/run/{who}.bus']
    if who == 'visitor':
        command = ['ip', 'netns', 'exec', 'visitor', *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def say(text):
    print(f'[{time.clock_gettime(time.CLOCK_BOOTTIME):7.2f}] {text}', flush=True)


def check(what, is_true, detail=''):
    global failures
    if is_true:
        say(f'ok   {what}')
    else:
        failures += 1
        say(f'FAIL {what} {detail}')
    return is_true


def within(what, seconds, condition):
    """Waits; how long it took, or None."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            took = time.monotonic() - begun
            check(f'{what}: after {took:.1f} s, at most {seconds}', True)
            return took
        time.sleep(0.05)
    check(f'{what} within {seconds} s', False)


def properties(who):
    answer = subprocess.run(
        ['busctl', f'--address=unix:path=/run/{who}.bus', '--json=short', 'call', 'org.pttd', '/org/pttd',
         'org.freedesktop.DBus.Properties', 'GetAll', 's', 'org.pttd.Nearby1'], capture_output=True, text=True, timeout=30)
    if answer.returncode != 0:
        return {'Channels': [], 'Problem': answer.stderr}
    plain = json.loads(answer.stdout)['data'][0]
    return {'Channels': [{k: v['data'] for k, v in c.items()} for c in plain['Channels']['data']],
            'Problem': plain['Problem']['data'], 'BluetoothProblem': plain['BluetoothProblem']['data']}


def listed(who):
    return next((c for c in properties(who)['Channels'] if c['Name'] == CHANNEL), None)


def radio(request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect('/run/pair.sock')
        connection.sendall((request + '\n').encode())
        return connection.recv(100)


def active(who):
    answer = ctl(who, 'status', '--json')
    if answer.returncode != 0:
        return None
    channels = json.loads(answer.stdout)['channels']
    return channels[0] if channels else None


def is_ready(who):
    channel = active(who)
    return channel is not None and channel['name'] == CHANNEL and channel['serviceStatus'] == 'ready'


def logged(who, text):
    with open(f'/ctl/out/{who}.log') as log:
        return text in log.read()


def create(name, *options):
    made = ctl('host', 'nearby', 'create', name, *options)
    return check(f'{name} is created', made.returncode == 0, made.stderr)


within('pttd runs', 20, lambda: ctl('host', 'status').returncode == 0 and ctl('visitor', 'status').returncode == 0)
browser = subprocess.Popen(['pttctl', 'nearby', '--seconds', '600', '--bus', 'unix:path=/run/visitor.bus'],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(2)
check('nothing is there before it is created', listed('visitor') is None)

# --- found by Bluetooth alone
create(CHANNEL)
within('the visitor sees the channel by Bluetooth', 10, lambda: listed('visitor'))
channel = listed('visitor') or {}
check('its signal is told, and that it was found by Bluetooth', channel.get('FoundBy') == ['bluetooth'] and channel.get('SignalStrength') == -50, channel)
check('its creator is told', channel.get('Creator') == 'Anna', channel)
lines = ctl('visitor', 'nearby', 'list', '--seconds', '0.2').stdout
check('pttctl says how it was found', 'bluetooth -50 dBm' in lines, lines)
problem = properties('visitor')['Problem']
check('Avahi is missing, and the user is told what is left', 'Bluetooth only' in problem, problem)

# --- no network leads there yet
begun = time.monotonic()
refused = ctl('visitor', 'nearby', 'join', CHANNEL)
check(f'without a network the join says what to do, after {time.monotonic() - begun:.1f} s',
      refused.returncode != 0 and 'hotspot' in refused.stderr, refused.stderr)

# --- Bluetooth's own network
def join_tells(words):
    answer = ctl('visitor', 'nearby', 'join', CHANNEL)
    return answer.returncode != 0 and words in answer.stderr


check('without a bridge on the host the user is told of it', 'pttd-pan' in refused.stderr, refused.stderr)
started = subprocess.run(['systemctl', 'start', 'pttd-pan'], capture_output=True, text=True)
check('pttd-pan makes the bridge', started.returncode == 0, started.stderr)
within('the user is told that the machines have to be paired, and how', 60, lambda: join_tells(f'pair {CLASSIC["host"]}'))
paired = subprocess.run(
    ['python3', '/host/Tests/VM/pair.py', CLASSIC['visitor'], CLASSIC['host']], capture_output=True, text=True, timeout=60)
check('the two machines are paired', paired.returncode == 0, paired.stdout + paired.stderr)


def joins():
    return ctl('visitor', 'nearby', 'join', CHANNEL).returncode == 0


def network_is_up():
    names = subprocess.run(['ip', '-n', 'visitor', '-brief', 'link'], capture_output=True, text=True).stdout
    return 'bnep' in names


def is_heard():
    talker = subprocess.Popen(
        ['ip', 'netns', 'exec', 'visitor', 'pttctl', 'talk', '--for', '4', '--bus', 'unix:path=/run/visitor.bus'],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    heard = False
    for _ in range(40):
        heard = heard or 'Ben is speaking' in ctl('host', 'status').stdout
        time.sleep(0.1)
    talker.wait()
    return heard


within('over Bluetooth the visitor joins', 30, joins)
check('it is the network of Bluetooth', network_is_up())
within('the visitor is ready over Bluetooth', 5, lambda: is_ready('visitor'))
within('the host hears that the visitor talks over Bluetooth', 20, is_heard)
device = '/org/bluez/' + paired.stdout.split()[-1]
subprocess.run(['busctl', 'call', 'org.bluez', device, 'org.bluez.Device1', 'Disconnect'], check=False, timeout=30)
within('the link is lost', 5, lambda: not network_is_up())
within('the network of Bluetooth is back by itself', 20, network_is_up)
within('and the channel with it', 30, is_heard)
left = ctl('visitor', 'leave')
check('the visitor leaves', left.returncode == 0, left.stderr)
within('the network of Bluetooth ends with the channel', 10, lambda: not network_is_up())

# --- the cable is plugged in, and the bridge is taken away
subprocess.run(['systemctl', 'stop', 'pttd-pan'], check=True)
for command in ('ip link set cable up', 'ip -n visitor link set plug up'):
    subprocess.run(command.split(), check=True)

within('with a network the visitor joins', 60, joins)
check('Bluetooth is no network where there is a cable', not network_is_up())
within('the visitor is ready', 5, lambda: is_ready('visitor'))
within('the host is ready', 5, lambda: is_ready('host'))
within('the host counts two members, and Bluetooth tells', 40, lambda: (listed('visitor') or {}).get('Members') == 2)
within('the host hears that the visitor talks', 20, is_heard)

# --- deleted
deleted = ctl('host', 'nearby', 'delete', CHANNEL)
check('the host deletes it', deleted.returncode == 0, deleted.stderr)
within('it is gone from the list', 15, lambda: listed('visitor') is None)

# --- a machine that vanishes
create(CHANNEL)
within('a new channel appears', 10, lambda: listed('visitor'))
radio('vanish 0')
within('a machine that has vanished is gone from the list', 15, lambda: listed('visitor') is None)
radio('return 0')
within('it is back', 12, lambda: listed('visitor'))

# --- bluetoothd restarts
subprocess.run(['systemctl', 'restart', 'bluetooth'], check=True)
time.sleep(0.5)
within('after a restart of bluetoothd the channel is gone or there again, and stays', 25,
       lambda: listed('visitor') and sum(line.count('channels announced by Bluetooth') for line in open('/ctl/out/host.log')) >= 3)
browser.terminate()
browser.wait()


def known():
    return subprocess.run(['busctl', 'tree', '--list', 'org.bluez'], capture_output=True, text=True, timeout=20).stdout


# bluetoothd takes two seconds to end a link, and a record may just be read.
within('BlueZ keeps no stranger when nobody looks any more', 10, lambda: 'dev_00_AA_02_00_00_01' not in known())
sys.exit(failures > 0)
