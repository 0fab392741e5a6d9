// The recorder of one pttd: the shipped rules, with what `Recorder` and the speech handler of pttd do around them.
import ChannelService
import Logging
import MonotonicTime
import TestSupport
import Vocabulary

@testable import Recordings

final class ProcessRecorder {
    private unowned let process: Process
    private let storage: SimulatedRecordings
    private let writer: RecordingWriter
    private var queue = RecordingQueue()
    private var waiting = 0
    /// Until when the thread of the disk works.
    private var busyUntil = Instant.zero
    private var random: SeededGenerator
    private var labels: [Recorder.Voice: RecordingLabel] = [:]

    init(process: Process) {
        self.process = process
        storage = process.device.recordings
        random = process.world.random("recorder \(process.device.number) \(process.life)")
        let clock = process.device.clock
        writer = RecordingWriter(
            RecordingSettings(folder: "", includesOwn: true), storage: storage,
            logger: Logger(label: "recordings") { _ in SwiftLogNoOpLogHandler() },
            clocks: { (1_795_000_000, clock.now) })
        onDisk { [writer] in writer.start() }
    }

    func take(_ event: SpeechEvent) {
        switch event {
        case .began(_, _, let burst): began(voice(burst))
        case .packet(let frame, let burst): packet(voice(burst), frame)
        case .ended(let burst): ended(voice(burst))
        case .left:
            for voice in labels.keys where voice != .own { forget(voice) }
            handOver(queue.othersEnded(waiting: waiting))
        case .ownFrame(let frame, _):
            if frame.isFirst { began(.own) }
            packet(.own, ReceivedFrame(own: frame))
        case .ownEnded(let erased):
            guard erased else { return ended(.own) }
            forget(.own, isDiscarded: true)
            handOver(queue.discarded(.own, waiting: waiting))
        }
    }

    private func voice(_ burst: TalkBurst?) -> Recorder.Voice { burst.map { .beside($0.number) } ?? .other }

    private func began(_ voice: Recorder.Voice) {
        forget(voice)
        let label = storage.began()
        labels[voice] = label
        handOver(queue.began(voice, label, waiting: waiting))
    }

    private func packet(_ voice: Recorder.Voice, _ frame: ReceivedFrame) {
        if let label = labels[voice] { storage.took(frame, label) }
        handOver(queue.packet(voice, frame, waiting: waiting))
    }

    private func ended(_ voice: Recorder.Voice) {
        forget(voice)
        handOver(queue.ended(voice, waiting: waiting))
    }

    private func forget(_ voice: Recorder.Voice, isDiscarded: Bool = false) {
        if let label = labels.removeValue(forKey: voice) { storage.ended(label, isDiscarded: isDiscarded) }
    }

    private func handOver(_ outcome: RecordingQueue.Outcome) {
        if queue.dropped > 0 { process.world.fail("I8", "\(process.name): recordings have gaps on a disk that works") }
        guard !outcome.batch.isEmpty else { return }
        waiting += outcome.batch.count
        onDisk { [self] in
            for event in outcome.batch { writer.handle(event) }
            waiting -= outcome.batch.count
        }
    }

    /// The thread of the disk does one thing after the other, and now and then waits for long.
    private func onDisk(_ work: @escaping () -> Void) {
        let clock = process.device.clock
        busyUntil =
            max(busyUntil, clock.now)
            + .milliseconds(Int.random(in: random.chance(5) ? 50...900 : 1...5, using: &random))
        clock.at(busyUntil) { [process] in if process.isAlive { work() } }
    }
}
