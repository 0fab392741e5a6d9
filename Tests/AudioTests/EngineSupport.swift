// Runs engines in a test as their owner would: waits for their descriptors and takes what comes out.
import Glibc
import Logging
import MonotonicTime
import Vocabulary

@testable import Audio

/// A logger that says nothing below an error.
var quiet: Logger {
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    return logger
}

/// The owner of a microphone and a speaker, either of which may be missing.
final class Owner {
    let microphone: CaptureEngine?
    let speaker: PlaybackEngine?
    var outputs: [CaptureOutput] = []
    var events: [PlaybackEvent] = []
    /// Called for each frame.
    var onFrame: (OutgoingFrame) -> Void = { _ in }

    init(microphone: CaptureEngine? = nil, speaker: PlaybackEngine? = nil) {
        self.microphone = microphone
        self.speaker = speaker
    }

    var frames: [OutgoingFrame] {
        outputs.compactMap { if case .frame(let frame) = $0 { frame } else { nil } }
    }

    var ends: [(burst: UInt32, reason: CaptureEnd)] {
        outputs.compactMap { if case .ended(let burst, let reason) = $0 { (burst, reason) } else { nil } }
    }

    var begins: [(burst: UInt32, at: Instant, after: Duration)] {
        outputs.compactMap {
            if case .began(let burst, let at, let after) = $0 { (burst, at, after) } else { nil }
        }
    }

    var playbackEnds: [(reason: PlaybackEnd, counts: PlaybackStatistics, at: Instant)] {
        events.compactMap {
            if case .ended(_, _, let reason, let counts, let at) = $0 { (reason, counts, at) } else { nil }
        }
    }

    var playbackBegins: [(at: Instant, delay: Duration, receivedAt: Instant)] {
        events.compactMap {
            if case .began(_, _, let at, let delay, let received) = $0 { (at, delay, received) } else { nil }
        }
    }

    /// Takes what comes until `isDone` or for `span`; returns whether it was done.
    @discardableResult
    func run(for span: Duration, until isDone: () -> Bool = { false }) -> Bool {
        let end = Instant.now + span
        while !isDone() {
            let left = end - .now
            guard left > .zero else { return false }
            var descriptors = [microphone?.descriptor, speaker?.descriptor].map {
                pollfd(fd: $0 ?? -1, events: Int16(POLLIN), revents: 0)
            }
            // Not everything that a test waits for is told by a descriptor.
            poll(&descriptors, 2, Int32(min(20, left.milliseconds.rounded(.up))))
            microphone?.drain { output in
                outputs.append(output)
                if case .frame(let frame) = output { onFrame(frame) }
            }
            speaker?.drain { events.append($0) }
        }
        return true
    }
}

/// How often a thread of this process has given up the processor to wait.
func voluntarySwitches(ofThreadsNamed name: String) -> Int {
    guard let directory = opendir("/proc/self/task") else { return -1 }
    defer { closedir(directory) }
    var sum = 0
    while let entry = readdir(directory) {
        let task = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        let status = String(decoding: readFile("/proc/self/task/\(task)/status"), as: UTF8.self)
        guard status.hasPrefix("Name:\t\(name)\n") else { continue }
        for line in status.split(separator: "\n") where line.hasPrefix("voluntary_ctxt_switches:") {
            sum += Int(line.split(separator: "\t").last ?? "") ?? 0
        }
    }
    return sum
}
