// The capture thread: carries commands to the burst, and the device's samples; opens, runs, stops and closes the device.
import MonotonicTime

/// What the thread runs. After a burst began it allocates nothing and takes no lock, as long as the device is not lost.
final class CaptureWorker: @unchecked Sendable {
    let rings: CaptureRings
    private let framer: SpeechFramer

    // The thread's own from here on.
    private let source: any CaptureSource
    private let burst: CaptureBurst
    private let scratch: UnsafeMutablePointer<Float>
    private var recovery = DeviceRecovery()
    private var recoveriesSeen = 0

    init(
        source: any CaptureSource, framer: SpeechFramer, waitsForLevel: Bool, settling: Duration? = nil, isWatched: Bool
    ) throws(AudioFault) {
        self.source = source
        self.framer = framer
        rings = try CaptureRings()
        burst = CaptureBurst(
            rings, framer: framer, waitsForLevel: waitsForLevel, settling: settling, isWatched: isWatched)
        scratch = .allocate(capacity: source.readMax)
        scratch.initialize(repeating: 0, count: source.readMax)
    }

    deinit { scratch.deallocate() }

    // MARK: The owner's side

    func setExpectedLoss(percent: Int) { framer.setExpectedLoss(percent: percent) }

    func nextOutput(device: AudioDevice) -> CaptureOutput? {
        rings.next(device: device, frameSamples: framer.frameSamples)
    }

    // MARK: The thread

    func run() {
        while !rings.isShutDown {
            takeCommands()
            if let next = recovery.nextDeadline {
                waitForDevice(until: next)
            } else if burst.isRunning {
                capture()
            } else if rings.wait(until: source.restsUntil) {
                source.endRest()
            }
        }
        if burst.isRunning { end(.closed) }
        source.close()
    }

    private func takeCommands() {
        if rings.takeOverload() { failed(AudioFault(.overload, 0)) }
        while let command = rings.nextCommand() {
            switch command {
            case .prepare: if burst.wantsPreparing() { _ = open() }
            case .unprepare: if burst.unprepare() { source.close() }
            case .start(let number, let at, let afterGoAhead): start(number, afterGoAhead: afterGoAhead, at: at)
            case .goAhead(let from): burst.goAhead(from: from)
            case .stop(let end): go(on: burst.stop(end: end))
            case .abort: if burst.isRunning { end(.aborted) }
            }
        }
    }

    private func start(_ number: UInt32, afterGoAhead: Bool, at now: Instant) {
        switch burst.start(number, afterGoAhead: afterGoAhead, at: now) {
        case .goOn: break
        case .openAndRun:
            _ = recovery.handle(.began(isOpen: false), at: now)
            if open() { runDevice() }
        case .run:
            _ = recovery.handle(.began(isOpen: true), at: now)
            runDevice()
        }
    }

    private func open() -> Bool {
        let began = Instant.now
        do throws(AudioFault) {
            try source.open()
        } catch {
            failed(error)
            return false
        }
        burst.opened()
        recoveriesSeen = source.recoveries
        rings.put(.prepared(took: .now - began))
        return true
    }

    private func runDevice() {
        rings.deviceStarts()
        burst.deviceStarts(at: .now)
        do throws(AudioFault) { try source.start() } catch { failed(error) }
    }

    private func capture() {
        let count: Int
        do throws(AudioFault) {
            count = try source.read(into: scratch)
        } catch {
            failed(error)
            return
        }
        let now = Instant.now
        guard count > 0 else {
            go(on: burst.takeNothing(scratch, at: now))
            return
        }
        let first = source.nextSampleTime - CaptureStateMachine.duration(Int64(count))
        var isBroken = false
        if case .isBack(let gap) = recovery.handle(.flowed, at: first) {
            isBroken = true
            rings.put(.resumed(gap: gap))
            if burst.hasBegun { rings.returned() }
        }
        if source.recoveries != recoveriesSeen {
            if !isBroken, burst.hasBegun { rings.overran(source.recoveries - recoveriesSeen) }
            isBroken = true
            recoveriesSeen = source.recoveries
        }
        go(on: burst.take(scratch, count, first: first, isBroken: isBroken, at: now))
    }

    private func go(on progress: CaptureBurst.Progress) {
        switch progress {
        case .goesOn: break
        case .isComplete: end(.stopped)
        case .hasStalled: failed(AudioFault(.stall, 0))
        case .isSilent: failed(AudioFault(.silence, 0))
        }
    }

    /// Stops the device, then says that the burst is over (I1).
    private func end(_ reason: CaptureEnd, deviceOpen: Bool = true) {
        let isOpen = deviceOpen && recovery.nextDeadline == nil
        if rings.isRunning {
            if isOpen { source.stop() } else { source.close() }
            rings.deviceStopped()
        }
        _ = recovery.handle(.ended, at: .now)
        burst.ended(reason, deviceOpen: isOpen)
    }

    // MARK: A device that fails

    private func failed(_ fault: AudioFault) {
        guard burst.isRunning else {
            source.close()
            _ = burst.unprepare()
            rings.put(.failed(fault))
            return
        }
        if case .wait(let isFirst) = recovery.handle(.failed(fault), at: .now) {
            source.close()
            burst.deviceLost()
            if isFirst { rings.put(.lost(fault)) }
            return
        }
        burst.finish()
        source.close()
        rings.put(.failed(fault))
        end(.deviceFailed, deviceOpen: false)
    }

    private func waitForDevice(until next: Instant) {
        if case .isComplete = burst.endOverdue(at: .now) {
            end(.stopped)
            return
        }
        guard .now >= next || rings.wait(until: next) else { return }
        guard recovery.handle(.due, at: .now) == .open else { return }
        do throws(AudioFault) {
            try source.open()
        } catch {
            failed(error)
            return
        }
        runDevice()
    }
}
