// The capture thread: carries commands to the state machine, samples from the device to the encoder, frames to the ring.
import COpus
import MonotonicTime
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// What `CaptureEngine` asks of its thread.
enum CaptureCommand: BitwiseCopyable {
    case prepare
    case unprepare
    case start(burst: UInt32, at: Int64)
    case stop(end: Int64)
    case abort
}

/// One slot of the ring of outputs.
struct CaptureSlot: BitwiseCopyable {
    enum Kind: UInt8, BitwiseCopyable { case prepared, began, frame, ended, failed }

    var kind: Kind
    var isFirst = false
    var isLast = false
    var end = CaptureEnd.stopped.rawValue
    var fault = AudioFault(.open, 0)
    var burst: UInt32 = 0
    var position: UInt32 = 0
    /// Nanoseconds: a point in time, or for `.prepared` a span.
    var time: Int64 = 0
    var span: Int64 = 0
}

/// The part of the engine that the thread runs. After a burst began it allocates nothing and takes no lock.
final class CaptureWorker: @unchecked Sendable {
    /// Outputs that wait to be taken; 64 frames of 20 ms are 1.3 s.
    static let outputsMax = 64
    /// Slots that frames leave free, so that a burst's last frame and its end always fit.
    private static let outputsReserve = 8
    private static let commandsMax = 64
    /// A device that gives nothing for so long has stalled.
    private static let stallMax = Duration.seconds(2)
    /// How long after the tail's end samples of before it may come.
    private static let tailGrace = Duration.milliseconds(500)

    let outputReady: WakeDescriptor
    private let wake: WakeDescriptor
    private let commands = SPSCRing<CaptureCommand>(capacity: commandsMax, payloadCapacity: 0)
    private let outputs = SPSCRing<CaptureSlot>(capacity: outputsMax, payloadCapacity: opusPayloadMax + 1)
    private let shutdown = Atomic<Bool>(false)
    /// Set when a command did not fit: whatever goes on is ended, for the lost command may have been the release.
    private let overloaded = Atomic<Bool>(false)
    private let running = Atomic<Bool>(false)
    private let framesOut = Atomic<Int>(0)
    private let framesDropped = Atomic<Int>(0)
    private let overruns = Atomic<Int>(0)
    private let starts = Atomic<Int>(0)
    private let stops = Atomic<Int>(0)

    // The thread's own from here on.
    private let source: any CaptureSource
    private let encoder: OpusEncoder
    private let frameSamples: Int
    private let pending: UnsafeMutablePointer<Float>
    private var pendingCount = 0
    private let scratch: UnsafeMutablePointer<Float>
    private let packet: UnsafeMutableRawBufferPointer
    private var machine = CaptureStateMachine()
    private var framePosition: Int64 = 0
    private var isFirstFrame = true
    private var lastSampleAt = Instant.zero
    private var recoveriesSeen = 0

    init(source: any CaptureSource, encoder: OpusEncoder, frameSamples: Int) throws(AudioFault) {
        self.source = source
        self.encoder = encoder
        self.frameSamples = frameSamples
        outputReady = try WakeDescriptor()
        wake = try WakeDescriptor()
        pending = .allocate(capacity: frameSamples)
        pending.initialize(repeating: 0, count: frameSamples)
        scratch = .allocate(capacity: source.readMax)
        scratch.initialize(repeating: 0, count: source.readMax)
        packet = .allocate(byteCount: opusPayloadMax, alignment: 16)
    }

    deinit {
        pending.deallocate()
        scratch.deallocate()
        packet.deallocate()
    }

    // MARK: The owner's side

    func command(_ command: CaptureCommand) {
        if !commands.push(command) { overloaded.store(true, ordering: .releasing) }
        wake.signal()
    }

    func shutDown() {
        shutdown.store(true, ordering: .releasing)
        wake.signal()
    }

    var isRunning: Bool { running.load(ordering: .acquiring) }

    var statistics: CaptureStatistics {
        var counts = CaptureStatistics()
        counts.frames = framesOut.load(ordering: .relaxed)
        counts.framesDropped = framesDropped.load(ordering: .relaxed)
        counts.overruns = overruns.load(ordering: .relaxed)
        counts.deviceStops = stops.load(ordering: .acquiring)
        counts.deviceStarts = starts.load(ordering: .acquiring)
        return counts
    }

    func nextOutput(device: AudioDevice) -> CaptureOutput? {
        outputs.pop { [frameSamples] slot, payload in
            switch slot.kind {
            case .prepared: .prepared(took: .nanoseconds(slot.span))
            case .began:
                .began(
                    burst: slot.burst, firstSampleAt: Instant(nanoseconds: slot.time), after: .nanoseconds(slot.span))
            case .frame:
                .frame(
                    EncodedFrame(
                        payload: Array(payload), samplesPerFrame: frameSamples, position: slot.position,
                        captureTime: Instant(nanoseconds: slot.time), burst: slot.burst, isFirst: slot.isFirst,
                        isLast: slot.isLast))
            case .ended: .ended(burst: slot.burst, CaptureEnd(rawValue: slot.end) ?? .deviceFailed)
            case .failed: .failed(AudioError(slot.fault, device: device))
            }
        }
    }

    // MARK: The thread

    func run() {
        while !shutdown.load(ordering: .acquiring) {
            takeCommands()
            if machine.isRunning {
                capture()
            } else {
                wake.wait()
            }
        }
        if machine.isRunning { end(.closed) }
        source.close()
    }

    private func takeCommands() {
        if overloaded.exchange(false, ordering: .acquiring) {
            while commands.pop({ _, _ in }) != nil {}
            failed(AudioFault(.overload, 0))
        }
        while let command = commands.pop({ command, _ in command }) {
            switch command {
            case .prepare: if machine.prepare() { _ = open() }
            case .unprepare: if machine.unprepare() { source.close() }
            case .start(let burst, let at): start(burst, at: Instant(nanoseconds: at))
            case .stop(let end): _ = machine.stop(end: Instant(nanoseconds: end))
            case .abort: if machine.isRunning { end(.aborted) }
            }
        }
    }

    private func open() -> Bool {
        let began = Instant.now
        do throws(AudioFault) {
            try source.open()
        } catch {
            source.close()
            failed(error)
            return false
        }
        machine.opened()
        recoveriesSeen = source.recoveries
        var slot = CaptureSlot(kind: .prepared)
        slot.span = (Instant.now - began).nanoseconds
        put(slot)
        return true
    }

    private func start(_ burst: UInt32, at now: Instant) {
        if machine.isRunning { finish() }
        let result = machine.start(burst: burst, at: now)
        pendingCount = 0
        framePosition = 0
        isFirstFrame = true
        encoder.reset()
        switch result {
        case .goOn(let finished):
            var slot = CaptureSlot(kind: .ended)
            slot.burst = finished
            slot.end = CaptureEnd.restarted.rawValue
            put(slot)
            if let first = machine.firstSampleAt { announce(first) }
            return
        case .openAndRun: guard open() else { return }
        case .run: break
        }
        starts.add(1, ordering: .releasing)
        running.store(true, ordering: .releasing)
        lastSampleAt = .now
        do throws(AudioFault) {
            try source.start()
        } catch {
            failed(error)
        }
    }

    private func capture() {
        let count: Int
        do throws(AudioFault) {
            count = try source.read(into: scratch)
        } catch {
            failed(error)
            return
        }
        guard count > 0 else {
            let now = Instant.now
            if now - lastSampleAt > Self.stallMax {
                failed(AudioFault(.stall, 0))
            } else if machine.isOverdue(at: now, grace: Self.tailGrace) {
                finish()
                end(.stopped)
            }
            return
        }
        lastSampleAt = .now
        if machine.firstSampleAt == nil {
            let first = source.nextSampleTime - CaptureStateMachine.duration(Int64(count))
            machine.began(at: first)
            announce(first)
        } else if source.recoveries != recoveriesSeen {
            bridgeGap(before: source.nextSampleTime - CaptureStateMachine.duration(Int64(count)))
        }
        append(scratch, machine.take(count))
        if machine.isComplete {
            finish()
            end(.stopped)
        }
    }

    /// Puts silence in the place of samples that an overrun lost: whole frames of it are not sent but skipped.
    private func bridgeGap(before next: Instant) {
        overruns.add(source.recoveries - recoveriesSeen, ordering: .relaxed)
        recoveriesSeen = source.recoveries
        guard let first = machine.firstSampleAt else { return }
        let lost = CaptureStateMachine.samples(next - first) - machine.position
        guard lost > 0 else { return }
        var silent = machine.take(Int(min(lost, Int64(Int32.max))))
        let skipped = max(0, silent - (frameSamples - pendingCount)) / frameSamples
        silent -= skipped * frameSamples
        let filling = min(silent, frameSamples - pendingCount)
        appendSilence(filling)
        framePosition += Int64(skipped * frameSamples)
        appendSilence(silent - filling)
    }

    private func append(_ samples: UnsafePointer<Float>, _ count: Int) {
        var taken = 0
        while taken < count {
            let part = min(count - taken, frameSamples - pendingCount)
            memcpy(pending + pendingCount, samples + taken, part * MemoryLayout<Float>.stride)
            pendingCount += part
            taken += part
            // A full frame of the tail waits when it may turn out to be the last: `finish` flags it.
            if pendingCount == frameSamples { encode(isLast: false) }
        }
    }

    private func appendSilence(_ count: Int) {
        memset(pending + pendingCount, 0, count * MemoryLayout<Float>.stride)
        pendingCount += count
        if pendingCount == frameSamples { encode(isLast: false) }
    }

    /// Sends what is left, and silence after it for as long as the encoder looks ahead, so that every sample arrives.
    private func finish() {
        guard machine.position > 0 else { return }
        var left = pendingCount + encoder.lookahead
        while left > 0 {
            memset(pending + pendingCount, 0, (frameSamples - pendingCount) * MemoryLayout<Float>.stride)
            left -= frameSamples
            encode(isLast: left <= 0)
        }
    }

    private func encode(isLast: Bool) {
        if let end = machine.endPosition, framePosition + Int64(pendingCount) > end - CaptureStateMachine.fade {
            for index in 0..<pendingCount { pending[index] *= machine.gain(at: framePosition + Int64(index)) }
        }
        let length = encoder.encode(pending, count: frameSamples, into: packet)
        pendingCount = 0
        var slot = CaptureSlot(kind: .frame)
        slot.burst = machine.burst
        slot.isFirst = isFirstFrame
        slot.isLast = isLast
        slot.position = UInt32(truncatingIfNeeded: framePosition)
        slot.time = ((machine.firstSampleAt ?? .now) + CaptureStateMachine.duration(framePosition)).nanoseconds
        framePosition += Int64(frameSamples)
        guard length > 0 else {
            framesDropped.add(1, ordering: .relaxed)
            return
        }
        isFirstFrame = false
        let payload = UnsafeRawBufferPointer(rebasing: packet[..<Int(length)])
        if outputs.push(slot, payload, reserve: isLast ? 0 : Self.outputsReserve) {
            framesOut.add(1, ordering: .relaxed)
            outputReady.signal()
        } else {
            framesDropped.add(1, ordering: .relaxed)
        }
    }

    private func announce(_ first: Instant) {
        var slot = CaptureSlot(kind: .began)
        slot.burst = machine.burst
        slot.time = first.nanoseconds
        slot.span = (first - machine.requestedAt).nanoseconds
        put(slot)
    }

    /// Stops the device, then says that the burst is over: who hears it may rely on I1.
    private func end(_ reason: CaptureEnd, deviceOpen: Bool = true) {
        let burst = machine.burst
        if running.load(ordering: .relaxed) {
            if deviceOpen { source.stop() } else { source.close() }
            stops.add(1, ordering: .releasing)
            running.store(false, ordering: .releasing)
        }
        machine.ended(deviceOpen: deviceOpen)
        pendingCount = 0
        precondition(!machine.isRunning)
        var slot = CaptureSlot(kind: .ended)
        slot.burst = burst
        slot.end = reason.rawValue
        put(slot)
    }

    private func failed(_ fault: AudioFault) {
        let wasRunning = machine.isRunning
        if wasRunning { finish() }
        var slot = CaptureSlot(kind: .failed)
        slot.fault = fault
        put(slot)
        if wasRunning {
            end(.deviceFailed, deviceOpen: false)
        } else {
            source.close()
            _ = machine.unprepare()
        }
    }

    private func put(_ slot: CaptureSlot) {
        // Events use the slots that frames leave free; an owner who takes nothing for many bursts loses them.
        if !outputs.push(slot) { framesDropped.add(1, ordering: .relaxed) }
        outputReady.signal()
    }
}
