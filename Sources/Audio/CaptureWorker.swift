// The capture thread: carries commands to the state machines, samples from the device to the framer, frames to the ring.
import MonotonicTime
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// The part of the engine that the thread runs. After a burst began it allocates nothing and takes no lock.
final class CaptureWorker: @unchecked Sendable {
    /// Outputs that wait to be taken; 128 frames of 10 ms are 1.3 s.
    static let outputsMax = 128
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
    private let returns = Atomic<Int>(0)
    private let encoding = Atomic<Int64>(0)
    private let starts = Atomic<Int>(0)
    private let stops = Atomic<Int>(0)

    // The thread's own from here on.
    private let source: any CaptureSource
    private let framer: SpeechFramer
    private let waitsForLevel: Bool
    private let scratch: UnsafeMutablePointer<Float>
    private var machine = CaptureStateMachine()
    private var hearing = MicrophoneHearing()
    private var recovery = DeviceRecovery()
    /// Whether the microphone has been heard since it was set running.
    private var hasHeard = false
    private var lastSampleAt = Instant.zero
    private var recoveriesSeen = 0

    init(source: any CaptureSource, framer: SpeechFramer, waitsForLevel: Bool) throws(AudioFault) {
        self.source = source
        self.framer = framer
        self.waitsForLevel = waitsForLevel
        outputReady = try WakeDescriptor()
        wake = try WakeDescriptor()
        scratch = .allocate(capacity: source.readMax)
        scratch.initialize(repeating: 0, count: source.readMax)
    }

    deinit { scratch.deallocate() }

    // MARK: The owner's side

    func command(_ command: CaptureCommand) {
        if !commands.push(command) { overloaded.store(true, ordering: .releasing) }
        wake.signal()
    }

    func shutDown() {
        shutdown.store(true, ordering: .releasing)
        wake.signal()
    }

    func setExpectedLoss(percent: Int) { framer.setExpectedLoss(percent: percent) }

    var isRunning: Bool { running.load(ordering: .acquiring) }

    var statistics: CaptureStatistics {
        var counts = CaptureStatistics()
        counts.frames = framesOut.load(ordering: .relaxed)
        counts.framesDropped = framesDropped.load(ordering: .relaxed)
        counts.overruns = overruns.load(ordering: .relaxed)
        counts.encoding = .nanoseconds(encoding.load(ordering: .relaxed))
        counts.returns = returns.load(ordering: .relaxed)
        counts.deviceStops = stops.load(ordering: .acquiring)
        counts.deviceStarts = starts.load(ordering: .acquiring)
        return counts
    }

    func nextOutput(device: AudioDevice) -> CaptureOutput? {
        outputs.pop { [frameSamples = framer.frameSamples] slot, payload in
            slot.output(payload: payload, frameSamples: frameSamples, device: device)
        }
    }

    // MARK: The thread

    func run() {
        while !shutdown.load(ordering: .acquiring) {
            takeCommands()
            if let next = recovery.nextAttempt {
                waitToReopen(at: next)
            } else if machine.isRunning {
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
            case .start(let burst, let at, let afterGoAhead):
                start(burst, afterGoAhead: afterGoAhead, at: Instant(nanoseconds: at))
            case .goAhead(let from): hearing.goAhead(from: Instant(nanoseconds: from))
            case .stop(let end): stop(end: Instant(nanoseconds: end))
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

    private func start(_ burst: UInt32, afterGoAhead: Bool, at now: Instant) {
        if machine.isRunning { finish() }
        if !machine.isRunning { hasHeard = false }
        hearing.begin(waitsForLevel: waitsForLevel && !hasHeard, afterGoAhead: afterGoAhead, at: now)
        let result = machine.start(burst: burst, at: now, goesOn: hearing.isPassed)
        framer.begin()
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
        runDevice()
    }

    private func runDevice() {
        if !running.load(ordering: .relaxed) {
            starts.add(1, ordering: .releasing)
            running.store(true, ordering: .releasing)
        }
        lastSampleAt = .now
        do throws(AudioFault) {
            try source.start()
        } catch {
            failed(error)
        }
    }

    private func stop(end: Instant) {
        guard machine.stop(end: end), !hearing.isPassed else { return }
        // What was said before the go-ahead is nobody's.
        self.end(.stopped)
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
            nothingCame(at: .now)
            return
        }
        lastSampleAt = .now
        let next = source.nextSampleTime
        let first = next - CaptureStateMachine.duration(Int64(count))
        if recovery.isLost { returned(at: first) }
        var dropped = 0
        if !hearing.isPassed {
            guard let early = hear(count, first: first) else { return }
            dropped = early
        }
        if machine.firstSampleAt == nil {
            recoveriesSeen = source.recoveries
            let begin = first + CaptureStateMachine.duration(Int64(dropped))
            machine.began(at: begin)
            announce(begin)
        } else if source.recoveries != recoveriesSeen {
            overruns.add(source.recoveries - recoveriesSeen, ordering: .relaxed)
            recoveriesSeen = source.recoveries
            bridgeGap(before: first)
        }
        let taken = machine.take(count - dropped)
        framer.append(scratch + dropped, taken, in: machine, put)
        if machine.isComplete {
            finish()
            end(.stopped)
        }
    }

    private func nothingCame(at now: Instant) {
        if !hearing.isPassed {
            // A Bluetooth microphone may give nothing at all until its link runs.
            _ = hear(0, first: now)
            if !hearing.isPassed { lastSampleAt = now }
        } else if now - lastSampleAt > Self.stallMax {
            failed(AudioFault(.stall, 0))
        } else if machine.isOverdue(at: now, grace: Self.tailGrace) {
            finish()
            end(.stopped)
        }
    }

    /// The samples of `scratch` while the microphone does not hear yet: how many come before the burst; nil: all.
    private func hear(_ count: Int, first: Instant) -> Int? {
        switch hearing.take(scratch, count: count, first: first, at: .now) {
        case .wait: return nil
        case .tell(let really):
            hasHeard = true
            var slot = CaptureSlot(kind: .hears)
            slot.burst = machine.burst
            slot.isHearing = really
            slot.span = (Instant.now - machine.requestedAt).nanoseconds
            put(slot)
            return nil
        case .pass(let dropping): return dropping
        }
    }

    /// Counts samples that were lost as silence.
    private func bridgeGap(before next: Instant) {
        guard let first = machine.firstSampleAt else { return }
        let lost = CaptureStateMachine.samples(next - first) - machine.position
        guard lost > 0 else { return }
        framer.appendGap(machine.take(Int(min(lost, Int64(Int32.max)))), in: machine, put)
    }

    private func finish() { framer.finish(in: machine, put) }

    private func put(_ frame: SpeechFramer.Frame) {
        var slot = CaptureSlot(kind: .frame)
        slot.burst = machine.burst
        slot.isFirst = frame.isFirst
        slot.isLast = frame.isLast
        slot.level = frame.level
        encoding.add(frame.took.nanoseconds, ordering: .relaxed)
        slot.position = UInt32(truncatingIfNeeded: frame.position)
        slot.time = ((machine.firstSampleAt ?? .now) + CaptureStateMachine.duration(frame.position)).nanoseconds
        guard frame.length > 0 else {
            framesDropped.add(1, ordering: .relaxed)
            return
        }
        let payload = UnsafeRawBufferPointer(rebasing: framer.packet[..<Int(frame.length)])
        if outputs.push(slot, payload, reserve: frame.isLast ? 0 : Self.outputsReserve) {
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
        let isOpen = deviceOpen && recovery.nextAttempt == nil
        if running.load(ordering: .relaxed) {
            if isOpen { source.stop() } else { source.close() }
            stops.add(1, ordering: .releasing)
            running.store(false, ordering: .releasing)
        }
        machine.ended(deviceOpen: isOpen)
        recovery.settled()
        precondition(!machine.isRunning)
        var slot = CaptureSlot(kind: .ended)
        slot.burst = burst
        slot.end = reason.rawValue
        put(slot)
    }

    private func failed(_ fault: AudioFault) {
        let wasRunning = machine.isRunning
        if wasRunning, tryAgain(after: fault) { return }
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

    // MARK: A device that is lost within a burst

    /// Whether the burst waits for its device to come back.
    private func tryAgain(after fault: AudioFault) -> Bool {
        let isNew = !recovery.isLost
        guard recovery.lost(fault, hasDelivered: machine.firstSampleAt != nil, at: .now) else { return false }
        source.close()
        hasHeard = false
        guard isNew else { return true }
        var slot = CaptureSlot(kind: .lost)
        slot.fault = fault
        put(slot)
        return true
    }

    private func waitToReopen(at next: Instant) {
        let now = Instant.now
        if machine.isOverdue(at: now, grace: .zero) {
            finish()
            end(.stopped)
            return
        }
        guard now >= next else {
            var waited = pollfd(fd: wake.descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&waited, 1, Int32((next - now).milliseconds.rounded(.up))) > 0 { wake.clear() }
            return
        }
        recovery.attempting()
        do throws(AudioFault) {
            try source.open()
        } catch {
            source.close()
            failed(error)
            return
        }
        runDevice()
    }

    /// Samples flow again, the first of which was at the microphone at `first`.
    private func returned(at first: Instant) {
        var slot = CaptureSlot(kind: .resumed)
        slot.span = (first - recovery.lostAt).nanoseconds
        put(slot)
        if machine.firstSampleAt != nil { returns.add(1, ordering: .relaxed) }
        recovery.settled()
        recoveriesSeen = source.recoveries
        if hearing.isPassed { bridgeGap(before: first) }
    }
}
