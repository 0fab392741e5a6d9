"""Speaker-microphones and headsets of virtual_bt.py: the hands-free profile with its sound, which BlueZ' btvirt (5.82 or later) passes
between its controllers as packets of the synchronous link (SCO).

What btvirt does is simpler than radio. A link is there at once when the machine asks for it, without a request at this end, and its
event names this end's own address, so that only bumble's host hears of it. A link that this end asks for is lost on the kernel for the
same reason. Data is not coded: with CVSD it is 16-bit sound of 8 kHz, as the kernel's voice setting says, and with mSBC it is the
frames of the machine."""
import array
import asyncio
import ctypes
import ctypes.util
import math
import random
import struct
import time
import wave

from bumble import a2dp, avdtp, hci, hfp, rfcomm

from virtual_classic import ClassicDevice, ClassicHost
from virtual_radio import log, now

SOUND, TRANSPARENT = hci.HCI_SYNCHRONOUS_DATA_PACKET, 3


class Narrow:
    """CVSD: sound of 8 kHz as it is, 3 ms a packet, as an adapter for USB cuts it."""

    name, rate, samples, interval = 'CVSD', 8000, 24, 0.003

    def pack(self, sound):
        return sound

    def unpack(self, data):
        return data


class Wide:
    """mSBC: 7.5 ms of 16 kHz a packet, coded by the library that BlueZ and PipeWire use."""

    name, rate, samples, interval = 'mSBC', 16000, 120, 0.0075
    counters = bytes((0x08, 0x38, 0xC8, 0xF8))

    class State(ctypes.Structure):
        _fields_ = [('flags', ctypes.c_ulong), ('parameters', ctypes.c_uint8 * 7), ('private', ctypes.c_void_p), ('memory', ctypes.c_void_p)]

    def __init__(self):
        self.library = ctypes.CDLL(ctypes.util.find_library('sbc') or 'libsbc.so.1')
        for name in ('sbc_encode', 'sbc_decode'):
            function = getattr(self.library, name)
            function.restype = ctypes.c_ssize_t
            function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.encoder, self.decoder, self.sent, self.read = self.State(), self.State(), 0, b''
        for state in (self.encoder, self.decoder):
            self.library.sbc_init_msbc(ctypes.byref(state), ctypes.c_ulong(0))
        self.output, self.done = ctypes.create_string_buffer(1024), ctypes.c_ssize_t()

    def pack(self, sound):
        n = self.library.sbc_encode(ctypes.byref(self.encoder), sound, len(sound), self.output, 57, ctypes.byref(self.done))
        if n < 0:
            raise ValueError(f'sbc_encode: {n}')
        self.sent += 1
        return bytes((0x01, self.counters[self.sent % 4])) + self.output.raw[:57] + b'\0'

    def unpack(self, data):
        """Frames need not begin where packets do."""
        self.read += data
        sound = b''
        while len(self.read) >= 60:
            if self.read[0] != 0x01 or self.read[1] not in self.counters or self.read[2] != 0xAD:
                self.read = self.read[1:]
                continue
            n = self.library.sbc_decode(ctypes.byref(self.decoder), self.read[2:59], 57, self.output, 1024, ctypes.byref(self.done))
            sound += self.output.raw[:240] if n > 0 else bytes(240)
            self.read = self.read[60:]
        return sound


class Mouth:
    """What is said into the microphone, whether anybody listens or not: a sound that goes round, since `begun`."""

    def __init__(self):
        self.say('zeros')

    def say(self, what):
        self.begun, self.what, self.sounds = time.monotonic(), what, {}

    def sound(self, rate):
        if rate not in self.sounds:
            if self.what == 'zeros':
                values = [0] * rate
            elif self.what == 'tone':
                values = [round(10000 * math.sin(2 * math.pi * 1000 * i / rate)) for i in range(rate)]
            elif self.what == 'noise':
                source = random.Random(1)
                values = [round(source.gauss(0, 3000)) for _ in range(10 * rate)]
            else:
                values = wave_at(self.what, rate)
            self.sounds[rate] = array.array('h', values)
        return self.sounds[rate]

    def at(self, t, rate, count):
        """`count` samples from the instant `t` on."""
        sound = self.sound(rate)
        start = max(0, round((t - self.begun) * rate)) % len(sound)
        return (sound[start:start + count] + sound[:max(0, start + count - len(sound))]).tobytes()


def wave_at(path, rate):
    """A mono WAV of 16 bits at another rate; between the samples of the file lie straight lines, after a mean where there are more."""
    with wave.open(path) as w:
        if (w.getnchannels(), w.getsampwidth()) != (1, 2):
            raise ValueError(f'{path} is not 16-bit and mono')
        values, own = array.array('h', w.readframes(w.getnframes())), w.getframerate()
    if own % rate == 0:
        step = own // rate
        return [sum(values[i:i + step]) // step for i in range(0, len(values) - step + 1, step)]
    result = []
    for i in range(len(values) * rate // own - 1):
        whole, part = divmod(i * own, rate)
        result.append(values[whole] + (values[whole + 1] - values[whole]) * part // rate)
    return result


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
            self.worn.on_link(event.connection_handle, event.air_mode)

    def on_hci_disconnection_complete_event(self, event):
        if event.connection_handle == self.worn.handle:
            self.worn.end_link()
        else:
            super().on_hci_disconnection_complete_event(event)


class SpeakerMicrophone(ClassicDevice):
    """A speaker-microphone with the hands-free profile alone. Its keys are AT commands."""

    name, class_of_device = 'Virtual Speaker Mic', 0x240408     # audio, hands-free
    host_class = SoundHost
    words = {'ptt': ('AT+XEVENT=TALK,1', 'AT+XEVENT=TALK,0'), 'text': ('+PTT=P', '+PTT=R'), 'call': ('AT+CKPD=200', ''),
             'hang-up': ('AT+CHUP', ''), 'redial': ('AT+BLDN', ''), 'voice': ('AT+BVRA=1', 'AT+BVRA=0')}
    controls = tuple(words)
    channel, codecs = 5, (hfp.AudioCodec.CVSD,)
    line = protocol = sender = None
    handle = None                       # of the link that carries sound
    delay, delay_is_silent = 0.0, False

    def __init__(self):
        self.mouth, self.ear, self.answers = Mouth(), [], []
        self.links = self.read_packets = self.sent_packets = 0
        self.link_opened = self.link_closed = 0
        features = [hfp.HfFeature.REMOTE_VOLUME_CONTROL]
        if len(self.codecs) > 1:
            features.append(hfp.HfFeature.CODEC_NEGOTIATION)
        self.configuration = hfp.HfConfiguration(features, [], list(self.codecs))

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
            self.protocol = hfp.HfProtocol(line, self.configuration)
            read = line.sink

            def note(data):
                log(f'{self.name}: read {bytes(data)!r}')
                self.answers.append(bytes(data).decode(errors='replace').strip())
                read(data)
            line.sink = note
            await self.protocol.initiate_slc()
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

    def on_link(self, handle, air_mode):
        self.handle, self.codec = handle, Wide() if air_mode == TRANSPARENT else Narrow()
        self.links, self.link_opened, self.read_packets, self.sent_packets = self.links + 1, now(), 0, 0
        log(f'{self.name}: link for sound opened, {self.codec.name}')
        self.sender = asyncio.get_running_loop().create_task(self.send(handle, self.codec))

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

    async def send(self, handle, codec):
        """A packet an interval, by the clock: what was late is sent at once."""
        loop, sink = asyncio.get_running_loop(), self.device.host.hci_sink
        begun = due = time.monotonic()
        silence = bytes(2 * codec.samples)
        self.mouth.sound(codec.rate)
        while True:
            if due - begun >= self.delay:
                sound = self.mouth.at(due, codec.rate, codec.samples)
            else:
                sound = None if self.delay_is_silent else silence
            if sound is not None:
                data = codec.pack(sound)
                sink.on_packet(struct.pack('<BHB', SOUND, handle, len(data)) + data)
                self.sent_packets += 1
            due += codec.interval
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            elif self.sent_packets % 16 == 0:
                await asyncio.sleep(0)

    def on_sound(self, data):
        if self.handle is None:
            return
        self.read_packets += 1
        if sound := self.codec.unpack(data):
            self.ear.append((now(), self.codec.rate, sound))

    def write_ear(self, path):
        """All that was heard since the last time: the parts of the last codec, and when each came (`SAMPLE NANOSECONDS`, of its end)."""
        rate, at = (self.ear[-1][1] if self.ear else 8000), 0
        with wave.open(path, 'wb') as w, open(path + '.clock', 'w') as clock:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(rate)
            for t, own, sound in self.ear:
                if own == rate:
                    w.writeframesraw(sound)
                    at += len(sound) // 2
                    clock.write(f'{at} {t}\n')
        self.ear = []
        return at, rate

    async def do_more(self, command, arguments):
        match command, arguments:
            case 'speak', ['stop']:
                self.mouth.say('zeros')
            case 'speak', [what]:
                self.mouth.say(what)
                self.mouth.sound(Narrow.rate)
                self.mouth.begun = time.monotonic()
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
            frames, rate = self.write_ear(arguments[0])
            return f'ok t={now()} frames={frames} rate={rate}'
        if command == 'drop':           # controllers end both, btvirt only what it is told
            await self.close_link()
        answer = await super().do(command, arguments)
        if command in ('press', 'release'):
            return answer
        if command == 'speak':
            answer += f' begun={round(self.mouth.begun * 1e9)}'
        return answer + (f' sco={int(self.handle is not None)} links={self.links} codec={self.codec.name if self.links else "-"}'
                         f' opened={self.link_opened} closed={self.link_closed} sent={self.sent_packets} read={self.read_packets}'
                         f' answer={"|".join(self.answers[-2:]).replace(" ", "_") or "-"}')


class SpeakerHeadset(SpeakerMicrophone):
    """A headset for music and calls: A2DP with SBC, and the hands-free profile with a choice of codecs."""

    name, class_of_device = 'Virtual Music Headset', 0x240404
    codecs = (hfp.AudioCodec.CVSD, hfp.AudioCodec.MSBC)
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
