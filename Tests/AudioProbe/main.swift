// Runs the two engines in a process of their own, for tests that need one: an ALSA configuration by environment, or a
// count of allocations. Prints one line per event: a word, then key=value.
//
//   AudioProbe loop MICROPHONE SPEAKER HOLD_MS [BURSTS] [GAP_MS]   the microphone's frames are the speaker's packets
//   AudioProbe allocations MICROPHONE SPEAKER FRAMES               allocations on the two threads within so many frames, which all
//                                                                  voices of the speaker play at once while their echo is
//                                                                  cancelled
//   AudioProbe press MICROPHONE SPEAKER                            on standard input: 1 presses, 0 releases, t plays a tone,
//                                                                  q ends
//   AudioProbe busy MICROPHONE SPEAKER                             the same, while another pair of engines holds the devices
//   AudioProbe check MICROPHONE SPEAKER [free]                     tries the devices, while an engine holds the microphone
//                                                                  unless it is free
//   AudioProbe open DEVICE                                         prepares it as a microphone, and as a speaker
import Audio
import CAllocationCounter
import Glibc
import Logging
import MonotonicTime
import Vocabulary

let arguments = CommandLine.arguments
LoggingSystem.bootstrap(StreamLogHandler.standardError)
let logger: Logger = {
    var logger = Logger(label: "probe")
    logger.logLevel = getenv("PROBE_LOG") == nil ? .critical : .trace
    return logger
}()

/// `allocations` counts in windows of so many frames, so many of them at most.
let windowFrames = 25
let windowsMax = 200

func threadIdentifier(named name: String) -> Int32? {
    guard let directory = opendir("/proc/self/task") else { return nil }
    defer { closedir(directory) }
    while let entry = readdir(directory) {
        let task = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        guard let identifier = Int32(task), let file = fopen("/proc/self/task/\(task)/comm", "r") else { continue }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 32)
        guard fgets(&line, 31, file) != nil else { continue }
        if line.withUnsafeBufferPointer({ String(cString: $0.baseAddress!) }) == name + "\n" { return identifier }
    }
    return nil
}

/// Feeds the microphone's frames to the speaker and prints what happens.
final class Loop {
    let microphone: CaptureEngine
    let speaker: PlaybackEngine
    var sequence: UInt16 = 65_500
    var timestamp: UInt32 = .max - 10_000
    var isOver = false
    var frames = 0
    var startedAt = Instant.zero
    var playbackEnded = 0
    var captureEnded = 0
    var failed = false
    var failures = 0
    var quiet = false
    var prepared = 0
    /// On how many voices each frame is played.
    var voices = 1

    init(_ microphoneText: String, _ speakerText: String, cancelsEcho: Bool = false, logger: Logger) throws {
        var (capture, playback) = (CaptureConfiguration(), PlaybackConfiguration())
        if cancelsEcho {
            let played = PlayedSound()
            capture.echoOf = played
            playback.played = played
        }
        // ALSA's null PCM is a microphone without sound.
        capture.isWatched = microphoneText != "null"
        microphone = try CaptureEngine(device: AudioDevice(microphoneText), configuration: capture, logger: logger)
        speaker = try PlaybackEngine(device: AudioDevice(speakerText), configuration: playback, logger: logger)
    }

    /// Times that a device had to be brought back, or was stopped and is set running anew by what comes next.
    var interruptions: Int {
        microphone.statistics.overruns + speaker.statistics.underruns + captureEnded + playbackEnded + failures
    }

    func say(_ line: String) {
        guard !quiet else { return }
        print(line)
        // Who reads waits for lines.
        fflush(nil)
    }

    func take(_ output: CaptureOutput) {
        let now = Instant.now
        switch output {
        case .prepared(let took):
            prepared += 1
            say("microphone-prepared ms=\(took.milliseconds)")
        case .began(let burst, let first, let after):
            say("capture-began burst=\(burst) t=\(first.nanoseconds) after_ms=\(after.milliseconds)")
        case .frame(let frame):
            frames += 1
            if frame.isFirst {
                say("first-frame after_start_ms=\((now - startedAt).milliseconds) t=\(frame.capturedAt.nanoseconds)")
            }
            let packet = ReceivedFrame(
                sequence: sequence, timestamp: timestamp &+ frame.position, marker: frame.isFirst,
                payload: frame.payload, receivedAt: now)
            for voice in 0..<voices { speaker.enqueue(packet, voice: voice) }
            if frame.isLast {
                for voice in 0..<voices { speaker.end(lastSequence: sequence, voice: voice) }
                timestamp &+= frame.position &+ 96_000
            }
            sequence &+= 1
        case .hears(let burst, let after, let really, _):
            say("microphone-hears burst=\(burst) really=\(really) after_ms=\(after.milliseconds)")
            microphone.goAhead(from: now)
        case .fellSilent(let burst): say("microphone-silent burst=\(burst)")
        case .heardAgain(let burst): say("microphone-heard-again burst=\(burst)")
        case .lost(let error):
            failures += 1
            say("microphone-lost \(error)")
        case .resumed(let gap): say("microphone-resumed gap_ms=\(gap.milliseconds)")
        case .ended(let burst, let reason):
            captureEnded += 1
            say("capture-ended burst=\(burst) reason=\(reason) running=\(microphone.isCapturing)")
        case .failed(let error):
            failed = true
            failures += 1
            say("microphone-failed \(error)")
        }
    }

    func take(_ event: PlaybackEvent) {
        switch event {
        case .prepared(let took):
            prepared += 1
            say("speaker-prepared ms=\(took.milliseconds)")
        case .began(_, let burst, let first, let delay, let received):
            say(
                "playback-began burst=\(burst) t=\(first.nanoseconds) delay_ms=\(delay.milliseconds) after_packet_ms=\((first - received).milliseconds)"
            )
        case .ended(_, let burst, let reason, let counts, let last):
            playbackEnded += 1
            say("playback-ended burst=\(burst) reason=\(reason) t=\(last.nanoseconds) \(counts)")
        case .toneBegan(let tone, let first): say("tone-began tone=\(tone) t=\(first.nanoseconds)")
        case .toneEnded(let tone, let last): say("tone-ended tone=\(tone) t=\(last.nanoseconds)")
        case .toneDropped(let tone): say("tone-dropped tone=\(tone)")
        case .promptEnded(let number): say("prompt-ended number=\(number)")
        case .lost(let error):
            failures += 1
            say("speaker-lost \(error)")
        case .failed(let error):
            failed = true
            failures += 1
            say("speaker-failed \(error)")
        }
    }

    /// Closes both devices, and waits for that.
    func close() {
        microphone.close()
        speaker.close()
        microphone.end.wait()
        speaker.end.wait()
    }

    func run(for span: Duration, until isDone: () -> Bool = { false }) {
        let end = Instant.now + span
        while !isDone(), end > .now {
            var descriptors = [
                pollfd(fd: microphone.descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: speaker.descriptor, events: Int16(POLLIN), revents: 0),
            ]
            poll(&descriptors, 2, Int32(max(1, (end - .now).milliseconds)))
            microphone.drain { take($0) }
            speaker.drain { take($0) }
        }
    }
}

extension Loop {
    /// What is counted: allocations and locks of the threads, frames, and times that a device had to be brought back.
    private struct Counts {
        var frames = 0
        var capture = 0
        var playback = 0
        var main = 0
        var captureLocks = 0
        var playbackLocks = 0
        var interruptions = 0

        func adding(_ sign: Int, _ other: Counts) -> Counts {
            Counts(
                frames: frames + sign * other.frames, capture: capture + sign * other.capture,
                playback: playback + sign * other.playback, main: main + sign * other.main,
                captureLocks: captureLocks + sign * other.captureLocks,
                playbackLocks: playbackLocks + sign * other.playbackLocks,
                interruptions: interruptions + sign * other.interruptions)
        }
    }

    /// Counts the allocations and the locks of the two threads, and prints them once there are `wanted` frames.
    ///
    /// A machine that was halted lets devices run dry. To bring them back does allocate, and is told a little later. So only windows count
    /// that are between two others, and nothing was brought back in the three.
    func countAllocations(wanted: Int, capture: Int32, playback: Int32) {
        func now() -> Counts {
            Counts(
                frames: frames, capture: ptt_allocations(capture), playback: ptt_allocations(playback),
                main: ptt_allocations(getpid()), captureLocks: ptt_locks(capture), playbackLocks: ptt_locks(playback),
                interruptions: interruptions)
        }
        let before = now()
        var (sum, total) = (Counts(), Counts())
        var last: [Counts] = []
        for _ in 1...windowsMax where sum.frames < wanted && captureEnded == 0 {
            let start = now()
            speaker.play(.microphoneOn)
            run(for: .seconds(10)) { frames >= start.frames + windowFrames || captureEnded > 0 }
            let window = now().adding(-1, start)
            total = total.adding(1, window)
            last = last.suffix(2) + [window]
            if last.count == 3, last.allSatisfy({ $0.interruptions == 0 }) { sum = sum.adding(1, last[1]) }
        }
        print(
            "allocations frames=\(sum.frames) capture=\(sum.capture) playback=\(sum.playback) main=\(sum.main) capture_before=\(before.capture) capture_locks=\(sum.captureLocks) playback_locks=\(sum.playbackLocks) all_frames=\(total.frames) interruptions=\(total.interruptions)"
        )
    }
}

/// Does what standard input says, while `holder` has the devices.
func press(holder: Loop?) throws {
    if let holder {
        holder.quiet = true
        holder.microphone.prepare()
        holder.speaker.prepare()
        holder.run(for: .seconds(5)) { holder.prepared >= 2 }
    }
    let loop = try Loop(arguments[2], arguments[3], logger: logger)
    if holder == nil {
        loop.microphone.prepare()
        loop.speaker.prepare()
        loop.run(for: .seconds(5)) { loop.prepared >= 2 || loop.failed }
    }
    loop.say("ready")
    var isOver = false
    while !isOver {
        loop.run(for: .milliseconds(2))
        var input = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
        guard poll(&input, 1, 0) > 0 else { continue }
        var key: UInt8 = 0
        switch (read(0, &key, 1), key) {
        case (1, UInt8(ascii: "1")):
            loop.startedAt = .now
            loop.microphone.start()
        case (1, UInt8(ascii: "0")): loop.microphone.stop(tail: .zero)
        case (1, UInt8(ascii: "t")): loop.speaker.play(.microphoneOn)
        case (1, UInt8(ascii: "q")): isOver = true
        case (1, _): break
        default: isOver = true
        }
    }
    loop.close()
    print("statistics \(loop.microphone.statistics) \(loop.speaker.statistics)")
}

/// Tries the devices, and tells what came of it; then it waits to be ended.
func check(isHeld: Bool) throws {
    let holder = isHeld ? try Loop(arguments[2], "null", logger: logger) : nil
    holder?.microphone.prepare()
    holder?.run(for: .milliseconds(500))
    @Sendable func tell(_ text: String) {
        print(text)
        fflush(nil)
    }
    let check = SoundCheck(
        microphone: try AudioDevice(arguments[2]), speaker: try AudioDevice(arguments[3]), length: .seconds(1)
    ) { event in
        switch event {
        case .level: break
        case .heard(let levels, let report): tell("check-heard \(levels.verdict) rate=\(report.form?.rate ?? 0)")
        case .plays(let isTone): tell("check-plays tone=\(isTone)")
        case .played(let report): tell("check-played rate=\(report.form?.rate ?? 0)")
        case .failed(let use, let error): tell("check-failed \(use) \(error)")
        case .ended: tell("check-ended")
        }
    }
    try check.start()
    while true { pause() }
}

do {
    switch arguments.dropFirst().first {
    case "loop" where arguments.count >= 5:
        let loop = try Loop(arguments[2], arguments[3], logger: logger)
        let hold = Duration.milliseconds(Int(arguments[4]) ?? 1000)
        let bursts = arguments.count > 5 ? Int(arguments[5]) ?? 1 : 1
        let gap = Duration.milliseconds(arguments.count > 6 ? Int(arguments[6]) ?? 500 : 500)
        if let origin = loop.speaker.recordingOrigin { print("recording-origin t=\(origin.nanoseconds)") }
        loop.microphone.prepare()
        loop.speaker.prepare()
        loop.run(for: .milliseconds(500))
        for burst in 1...bursts where !loop.failed {
            loop.startedAt = .now
            print("start t=\(loop.startedAt.nanoseconds)")
            loop.microphone.start()
            loop.run(for: hold) { loop.failed }
            loop.microphone.stop()
            print("stop t=\(Instant.now.nanoseconds)")
            loop.run(for: .seconds(5)) { loop.captureEnded >= burst && (loop.playbackEnded >= burst || loop.failed) }
            loop.run(for: gap)
        }
        loop.close()
        print("statistics \(loop.microphone.statistics) \(loop.speaker.statistics)")
    case "allocations" where arguments.count >= 5:
        let loop = try Loop(arguments[2], arguments[3], cancelsEcho: true, logger: logger)
        let wanted = Int(arguments[4]) ?? 500
        loop.voices = PlaybackEngine.voicesMax
        loop.microphone.prepare()
        loop.speaker.prepare()
        loop.microphone.start()
        loop.quiet = true
        loop.run(for: .seconds(10)) { loop.frames >= 50 }
        guard let capture = threadIdentifier(named: "ptt-capture"),
            let playback = threadIdentifier(named: "ptt-playback")
        else { fatalError("the engines' threads have other names") }
        loop.countAllocations(wanted: wanted, capture: capture, playback: playback)
        loop.close()
    case "press" where arguments.count >= 4: try press(holder: nil)
    case "busy" where arguments.count >= 4: try press(holder: Loop(arguments[2], arguments[3], logger: logger))
    case "check" where arguments.count >= 4: try check(isHeld: arguments.count == 4)
    case "open" where arguments.count >= 3:
        let loop = try Loop(arguments[2], arguments[2], logger: logger)
        loop.microphone.prepare()
        loop.speaker.prepare()
        loop.run(for: .milliseconds(1_000))
    default:
        print("usage: AudioProbe loop|allocations|open …; see the head of its source")
        exit(2)
    }
} catch {
    print("failed \(error)")
    exit(1)
}
