"""Speaker-microphones and headsets of virtual_bt.py: the hands-free profile with its sound, which BlueZ' btvirt (5.82 or later) passes
between its controllers as packets of the synchronous link (SCO).

What btvirt does is simpler than radio. A link is there at once when the machine asks for it, without a request at this end, and its
event names this end's own address, so that only bumble's host hears of it. A link that this end asks for is lost on the kernel for the
same reason. Data is not coded: with CVSD it is 16-bit sound of 8 kHz, as the kernel's voice setting says. There is no mSBC, because
btvirt's controllers do not say that they carry it (5.82)."""
import array
import asyncio
import random
import struct
import time

from bumble import a2dp, avdtp, hci, hfp, rfcomm

import worn_sound
from virtual_classic import ClassicDevice, ClassicHost
from virtual_radio import log, now

SOUND = hci.HCI_SYNCHRONOUS_DATA_PACKET
SAMPLES = 24                    # 3 ms a packet, as an adapter for USB cuts them
INTERVAL = SAMPLES / worn_sound.RATE


class Mouth:
    """What is said into the microphone, whether anybody listens or not: a sound that goes round, since `begun`."""

    def __init__(self):
        self.say('zeros')

    def say(self, what):
        match what:
            case 'zeros' | 'stop':
                values = [0] * worn_sound.RATE
            case 'tone':
                values = worn_sound.tone(1)
            case 'noise':
                values = worn_sound.noise(10)
            case path:
                # With the little noise of a microphone: a sound file is wholly silent between words.
                values = [min(32000, max(-32000, value + random.randint(-8, 8)))
                          for value in worn_sound.at_rate(*worn_sound.read(path), worn_sound.RATE)]
        self.sound, self.begun = array.array('h', values), time.monotonic()

    def at(self, t, count):
        """`count` samples from the instant `t` on."""
        start = max(0, round((t - self.begun) * worn_sound.RATE)) % len(self.sound)
        return (self.sound[start:start + count] + self.sound[:max(0, start + count - len(self.sound))]).tobytes()


class SoundHost(ClassicHost):
    """bumble's host, which is spared the links for sound: it would look for a connection of the address in their events, and there are
    hundreds of packets a second."""

    worn = None

    def on_packet(self, packet):
        if packet[0] == SOUND:
            self.worn.on_sound(packet[4:])
        else:
            super().on_packet(packet)

    def on_hci_synchronous_connection_complete_event(self, event):
        if event.status == hci.HCI_SUCCESS:
            self.worn.on_link(event.connection_handle)

    def on_hci_disconnection_complete_event(self, event):
        if event.connection_handle == self.worn.handle:
            self.worn.end_link()
        else:
            super().on_hci_disconnection_complete_event(event)


class ControlLine(hfp.HfProtocol):
    """bumble's end, which writes out the zeros that PulseAudio wants to read, as real headsets do."""

    async def execute_command(self, command, *arguments, **options):
        command = command.replace('AT+CMER=3,,,1', 'AT+CMER=3,0,0,1')
        return await super().execute_command(command, *arguments, **options)


class SpeakerMicrophone(ClassicDevice):
    """A speaker-microphone with the hands-free profile alone. Its keys are AT commands."""

    name, class_of_device = 'Virtual Speaker Mic', 0x240408     # audio, hands-free
    host_class = SoundHost
    words = {'ptt': ('AT+XEVENT=TALK,1', 'AT+XEVENT=TALK,0'), 'text': ('+PTT=P', '+PTT=R'), 'call': ('AT+CKPD=200', ''),
             'hang-up': ('AT+CHUP', ''), 'redial': ('AT+BLDN', ''), 'voice': ('AT+BVRA=1', 'AT+BVRA=0')}
    controls = tuple(words)
    channel = 5
    configuration = hfp.HfConfiguration([hfp.HfFeature.REMOTE_VOLUME_CONTROL], [], [hfp.AudioCodec.CVSD])
    line = protocol = sender = None
    handle = None                       # of the link that carries sound
    delay, delay_is_silent = 0.0, False

    def __init__(self):
        self.mouth, self.ear, self.answers = Mouth(), [], []
        self.links = self.read_packets = self.sent_packets = 0
        self.link_opened = self.link_closed = 0

    def records(self):
        return {0x10001: hfp.make_hf_sdp_records(0x10001, self.channel, self.configuration)}

    async def start(self):
        rfcomm.Server(self.device).listen(self.on_line, self.channel)
        self.device.host.worn = self
        await super().start()

    # --- the control line

    def on_line(self, line):
        log(f'{self.name}: control line opened')
        self.line = line

        async def run():
            self.protocol = ControlLine(line, self.configuration)
            read = line.sink

            def note(data):
                log(f'{self.name}: read {bytes(data)!r}')
                self.answers.append(bytes(data).decode(errors='replace').strip())
                read(data)
            line.sink = note
            try:
                await self.protocol.initiate_slc()
            except Exception as error:
                log(f'{self.name}: no service level connection, {error!r}')
                return
            log(f'{self.name}: service level connection')
            await self.protocol.run()

        def closed():
            log(f'{self.name}: control line closed')
            if self.line is line:
                self.line = self.protocol = None
        line.on(line.EVENT_CLOSE, closed)
        self.task = asyncio.get_running_loop().create_task(run())

    def is_open(self):
        return self.line is not None

    async def change(self, control, down):
        word = self.words[control][not down]
        t = now()
        if word:
            self.line.write(word + '\r')
        return t

    async def close(self):
        if self.line is not None:
            await self.line.disconnect()
            self.line = None

    # --- sound

    def on_link(self, handle):
        self.handle = handle
        self.links, self.link_opened, self.read_packets, self.sent_packets = self.links + 1, now(), 0, 0
        log(f'{self.name}: link for sound opened')
        self.sender = asyncio.get_running_loop().create_task(self.send(handle))

    async def close_link(self):
        if self.handle is not None:
            await self.device.host.send_async_command(hci.HCI_Disconnect_Command(
                connection_handle=self.handle, reason=hci.HCI_REMOTE_USER_TERMINATED_CONNECTION_ERROR))

    def end_link(self):
        if self.handle is None:
            return
        log(f'{self.name}: link for sound closed after {self.sent_packets} packets sent and {self.read_packets} read')
        self.sender.cancel()
        self.handle, self.link_closed = None, now()

    def on_connection(self, connection):
        super().on_connection(connection)

        def gone(_):
            self.line = self.protocol = None
            self.end_link()
        connection.on('disconnection', gone)

    async def send(self, handle):
        """A packet an interval, by the clock: what was late is sent at once."""
        sink = self.device.host.hci_sink
        begun = due = time.monotonic()
        silence = bytes(2 * SAMPLES)
        while True:
            if due - begun >= self.delay:
                sound = self.mouth.at(due, SAMPLES)
            else:
                sound = None if self.delay_is_silent else silence
            if sound is not None:
                sink.on_packet(struct.pack('<BHB', SOUND, handle, len(sound)) + sound)
                self.sent_packets += 1
            due += INTERVAL
            await asyncio.sleep(max(0, due - time.monotonic()))

    def on_sound(self, data):
        if self.handle is not None:
            self.read_packets += 1
            self.ear.append((now(), data))

    def write_ear(self, path):
        """All that was heard since the last time, and when each packet came (`SAMPLE NANOSECONDS`, of its end)."""
        sounds, self.ear, at = self.ear, [], 0
        worn_sound.write(path, array.array('h', b''.join(sound for _, sound in sounds)), worn_sound.RATE)
        with open(path + '.clock', 'w') as clock:
            for t, sound in sounds:
                at += len(sound) // 2
                clock.write(f'{at} {t}\n')
        return at

    async def do_more(self, command, arguments):
        match command, arguments:
            case 'speak', [what]:
                self.mouth.say(what)
            case 'delay', [milliseconds, *how]:     # of each link, until true sound comes; `nothing`: no packets either
                self.delay, self.delay_is_silent = int(milliseconds) / 1000, how == ['nothing']
            case 'sco', ['close']:
                await self.close_link()
            case 'sco', []:
                pass
            case 'dial', []:                # the device opens the machine's end, as it does when it was switched on
                connection = await self.connection()
                record = await hfp.find_ag_sdp_record(connection)
                if record is None:
                    raise ValueError('the machine is no audio gateway')
                self.on_line(await (await rfcomm.Client(connection).start()).open_dlc(record[0]))
            case 'at', [*words]:
                self.line.write(' '.join(words) + '\r')
            case _:
                return False
        return True

    async def do(self, command, arguments):
        if command == 'heard':
            return f'ok t={now()} frames={self.write_ear(arguments[0])}'
        if command == 'drop':           # controllers end both, btvirt only what it is told
            await self.close_link()
        answer = await super().do(command, arguments)
        if command in ('press', 'release'):
            return answer
        if command == 'speak':
            answer += f' begun={round(self.mouth.begun * 1e9)}'
        return answer + (f' sco={int(self.handle is not None)} links={self.links}'
                         f' opened={self.link_opened} closed={self.link_closed} sent={self.sent_packets} read={self.read_packets}'
                         f' answer={"|".join(self.answers[-2:]).replace(" ", "_") or "-"}')


class SpeakerHeadset(SpeakerMicrophone):
    """A headset for music and calls: A2DP with SBC, and the hands-free profile."""

    name, class_of_device = 'Virtual Music Headset', 0x240404
    music, music_packets = 'none', 0

    def records(self):
        return {**super().records(), 0x10002: a2dp.make_audio_sink_service_sdp_records(0x10002)}

    async def start(self):
        def connected(server):
            sbc = a2dp.SbcMediaCodecInformation
            sink = server.add_sink(avdtp.MediaCodecCapabilities(
                media_type=avdtp.AVDTP_AUDIO_MEDIA_TYPE, media_codec_type=a2dp.A2DP_SBC_CODEC_TYPE,
                media_codec_information=sbc(
                    sampling_frequency=sbc.SamplingFrequency.SF_44100 | sbc.SamplingFrequency.SF_48000,
                    channel_mode=sbc.ChannelMode(15), block_length=sbc.BlockLength(15), subbands=sbc.Subbands(3),
                    allocation_method=sbc.AllocationMethod(3), minimum_bitpool_value=2, maximum_bitpool_value=53)))

            def state(word):
                log(f'{self.name}: music {word}')
                self.music = word
            for event in ('open', 'start', 'suspend', 'close', 'abort'):
                sink.on(event, lambda *_, word=event: state(word))

            def packet(_):
                self.music_packets += 1
            sink.on('rtp_packet', packet)
        self.listener = avdtp.Listener.for_device(self.device)
        self.listener.on('connection', connected)
        await super().start()

    async def do(self, command, arguments):
        answer = await super().do(command, arguments)
        return answer if command in ('press', 'release', 'heard') else f'{answer} music={self.music} music-packets={self.music_packets}'


HEADSETS = {'speaker-mic': SpeakerMicrophone, 'music-headset': SpeakerHeadset}
