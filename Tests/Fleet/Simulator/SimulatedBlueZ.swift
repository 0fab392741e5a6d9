// bluetoothd, the adapter and the radio of one device, with the behaviours that docs/bluez.md tells of.
import BlueZ
import MonotonicTime
import TestSupport

@testable import Accessories

/// BlueZ as one pttd sees it. It outlives pttd.
final class SimulatedBlueZ {
    private unowned let device: Device
    private let world: World
    private let clock: MachineClock
    private var random: SeededGenerator
    private var devices: [DeviceIdentifier: DeviceFacts] = [:]
    private(set) var isServiceUp = true
    private(set) var isAdapterOn = true
    private(set) var hungUntil = Instant.zero
    /// Counts the lives of bluetoothd: what was asked of a former one is void.
    private var life = 0
    // Of the present client.
    private var registered: Set<BluetoothUUID> = []
    private var notifying: Set<CharacteristicIdentifier> = []
    private var lastReport = Instant.zero
    private var linking: Set<DeviceIdentifier> = []
    /// Serial ports that pttd has open, and when it was given bytes of one last.
    private var streams: Set<DeviceIdentifier> = []
    private var lastBytes = Instant.zero
    /// Devices whose port pttd waits for, with the answer.
    private var opening: [DeviceIdentifier: (BluetoothFailure?) -> Void] = [:]
    /// What bluetoothd was asked and has not looked at yet.
    private var unanswered: [Int: (BluetoothFailure?) -> Void] = [:]
    private var lastCommand = 0

    init(device: Device) {
        self.device = device
        world = device.world
        clock = device.clock
        random = device.world.random("bluez \(device.number)")
        for button in device.buttons { devices[button.id] = button.facts }
    }

    var isHung: Bool { clock.now < hungUntil }

    private func isWorking() -> Bool { isServiceUp && isAdapterOn }

    private func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &random))
    }

    // MARK: To pttd

    /// Tells pttd, in order; a halted bluetoothd tells it afterwards, unless it has ended by then.
    ///
    /// - Parameters:
    ///   - edge: When the finger came down that the event tells of.
    ///   - then: Follows what is told.
    private func report(
        _ report: BluetoothReport, edge: Instant? = nil, isRead: Bool = false, then: @escaping () -> Void = {}
    ) {
        guard let process = device.process else { return }
        lastReport = max(max(lastReport, hungUntil) + .nanoseconds(1), clock.now + milliseconds(1...8))
        let life = life
        whenAwake(lastReport) { [self] in
            guard life == self.life else { return }
            if let edge { process.heard(edge, isRead: isRead) }
            process.accessories.handle(.bluetooth(report))
            then()
        }
    }

    /// Then, or when it goes on: it may have been halted once more meanwhile.
    private func whenAwake(_ time: Instant, _ work: @escaping () -> Void) {
        clock.at(time) { [self] in if isHung { whenAwake(hungUntil, work) } else { work() } }
    }

    private func changed(_ id: DeviceIdentifier) { if let facts = devices[id] { report(.device(facts)) } }

    /// pttd has connected to the bus.
    func clientCame() {
        (registered, notifying) = ([], [])
        lastReport = clock.now
        guard isServiceUp else { return }
        tellAll()
    }

    /// pttd is gone: what it asked for ends with it.
    func clientLeft() { (registered, notifying, streams, opening) = ([], [], [], [:]) }

    private func tellAll() {
        for button in device.buttons { changed(button.id) }
        report(.radio(isAdapterOn ? .on : .off))
    }

    // MARK: Trouble

    func stop(for time: Duration) {
        guard isServiceUp else { return }
        world.note(device.name, "bluetoothd stops")
        isServiceUp = false
        life += 1
        (hungUntil, lastReport) = (.zero, clock.now)
        for button in device.buttons { unlink(button.id, tells: false) }
        (registered, notifying) = ([], [])
        let calls = unanswered.sorted { $0.key < $1.key }.map(\.value)
        unanswered = [:]
        clock.after(.milliseconds(1)) { for completed in calls { completed(.serviceGone) } }
        report(.radio(.noService))
        clock.after(time) { [self] in
            world.note(device.name, "bluetoothd is there again")
            isServiceUp = true
            tellAll()
            for button in device.buttons { advertise(button) }
        }
    }

    func hang(for time: Duration) {
        guard isServiceUp else { return }
        world.note(device.name, "bluetoothd is halted")
        hungUntil = max(hungUntil, clock.now + time)
        for button in device.buttons where !button.isStream { button.isLost() }
    }

    func switchOff(for time: Duration) {
        guard isAdapterOn else { return }
        world.note(device.name, "the adapter is off")
        isAdapterOn = false
        for button in device.buttons { unlink(button.id, tells: isServiceUp) }
        if isServiceUp { report(.radio(.off)) }
        // It is bluetoothd that powers it on again.
        whenAwake(clock.now + time) { [self] in
            world.note(device.name, "the adapter is on")
            isAdapterOn = true
            guard isServiceUp else { return }
            report(.radio(.on))
            for button in device.buttons { advertise(button) }
        }
    }

    /// The controller has no power while the machine sleeps: all links are lost, which is told afterwards.
    func fellAsleep() { for button in device.buttons { unlink(button.id, tells: isServiceUp) } }

    func wokeUp() { for button in device.buttons { advertise(button) } }

    /// A button is out of reach; BlueZ notices later.
    func lose(_ button: Button, for time: Duration, noticedAfter: Duration) {
        guard button.isInReach else { return }
        world.note(device.name, "button \(button.number) is out of reach")
        button.isInReach = false
        let life = life
        clock.after(noticedAfter) { [self] in
            if life == self.life { unlink(button.id, tells: true) }
            if button.isInReach { advertise(button) }
        }
        world.after(max(time, noticedAfter)) { [self] in
            world.note(device.name, "button \(button.number) is in reach")
            button.isInReach = true
            advertise(button)
        }
    }

    // MARK: Links

    func isConnected(_ button: Button) -> Bool { devices[button.id]?.isConnected == true }

    /// Whether a press is told.
    func hears(_ button: Button) -> Bool {
        guard !button.isStream else { return streams.contains(button.id) && button.isInReach }
        return isWorking() && button.isInReach && isConnected(button) && notifying.contains(button.characteristic)
    }

    private func link(_ id: DeviceIdentifier) {
        guard devices[id]?.isConnected == false, !linking.contains(id) else { return }
        linking.insert(id)
        let life = life
        clock.after(milliseconds(30...400)) { [self] in
            linking.remove(id)
            guard life == self.life, isWorking(), let button = self.button(id), button.isInReach else { return }
            world.note(device.name, "button \(button.number) is connected")
            devices[id]?.isConnected = true
            changed(id)
            clock.after(milliseconds(20...300)) { [self] in
                guard life == self.life, devices[id]?.isConnected == true else { return }
                devices[id]?.servicesResolved = true
                changed(id)
            }
        }
    }

    private func unlink(_ id: DeviceIdentifier, tells: Bool) {
        guard devices[id]?.isConnected == true else { return }
        world.note(device.name, "button \(button(id)?.number ?? 9) is disconnected")
        devices[id]?.isConnected = false
        devices[id]?.servicesResolved = false
        if let button = self.button(id) { device.linkIsGone(button) }
        closeStream(id)
        if tells { changed(id) }
    }

    private func button(_ id: DeviceIdentifier) -> Button? { device.buttons.first { $0.id == id } }

    /// It can be connected now: BlueZ does so when it is trusted and one of its services is registered.
    func advertise(_ button: Button) {
        if button.isStream { return offerStream(of: button) }
        guard isWorking(), button.isInReach, let facts = devices[button.id], facts.isTrusted, !facts.isConnected,
            facts.services.contains(where: registered.contains)
        else { return }
        link(button.id)
    }

    // MARK: Values

    /// The button tells its state, if it can.
    ///
    /// - Returns: Whether pttd is going to hear it.
    @discardableResult
    func notify(_ button: Button, _ bytes: [UInt8]) -> Bool {
        advertise(button)
        if button.isStream { return send(bytes, of: button) }
        guard hears(button), world.now >= button.mutedUntil else { return false }
        report(.value(characteristic: button.characteristic, bytes: bytes, at: clock.now), edge: button.edge)
        return true
    }

    // MARK: Commands

    /// When BlueZ has answered for certain.
    func perform(_ command: BluetoothCommand, completed: @escaping (BluetoothFailure?) -> Void) {
        guard isServiceUp else { return clock.after(milliseconds(2...60)) { completed(.serviceGone) } }
        let number = lastCommand
        lastCommand += 1
        unanswered[number] = completed
        let delay = milliseconds(2...60)
        whenAwake(max(clock.now + delay, hungUntil)) { [self] in
            // The bus has answered for a bluetoothd that is gone.
            guard unanswered.removeValue(forKey: number) != nil else { return }
            answer(command, completed)
        }
    }

    private func answer(_ command: BluetoothCommand, _ completed: @escaping (BluetoothFailure?) -> Void) {
        switch command {
        case .connect(let id):
            guard isAdapterOn else { return completed(.notReady) }
            guard let button = self.button(id) else { return completed(.doesNotExist) }
            guard button.isInReach else {
                clock.after(.seconds(20)) { completed(.timedOut) }
                return
            }
            link(id)
            clock.after(.milliseconds(500)) { completed(nil) }
        case .disconnect(let id):
            unlink(id, tells: true)
            completed(nil)
        case .trust(let id):
            devices[id]?.isTrusted = true
            changed(id)
            completed(nil)
        case .pair(let id):
            devices[id]?.isPaired = true
            changed(id)
            completed(nil)
        case .startNotify(let characteristic):
            guard devices[characteristic.device]?.isConnected == true else { return completed(.notConnected) }
            notifying.insert(characteristic)
            completed(nil)
        case .read(let characteristic):
            guard let button = button(characteristic.device), button.isInReach, isConnected(button) else {
                return completed(.notConnected)
            }
            report(
                .read(characteristic: characteristic, bytes: button.value(isRepetition: false)), edge: button.edge,
                isRead: true
            ) { completed(nil) }
        case .probe, .cancelPairing: completed(nil)
        case .autoConnect(let services):
            registered = services
            completed(nil)
            report(.autoConnect(isArmed: true))
            for button in device.buttons { advertise(button) }
        case .startDiscovery, .stopDiscovery, .write, .writeStream, .setLink: completed(nil)
        case .openStream(let id, _): openStream(id, completed)
        case .closeStream(let id, _):
            streams.remove(id)
            opening[id]?(.notConnected)
            completed(nil)
        case .remove(let id):
            devices[id] = nil
            report(.deviceRemoved(id))
            completed(nil)
        }
    }
}

// MARK: Serial ports

extension SimulatedBlueZ {
    /// A device that is paired connects its serial port by itself when it is there.
    private func offerStream(of button: Button) {
        guard isWorking(), !isHung, button.isInReach, let facts = devices[button.id], facts.isPaired, !facts.isConnected
        else { return }
        link(button.id)
        if opening[button.id] == nil {
            report(.streamOffered(device: button.id, .serialPort))
        } else {
            finishOpening(button)
        }
    }

    /// pttd asks for it: the device is paged, and its port found.
    private func openStream(_ id: DeviceIdentifier, _ completed: @escaping (BluetoothFailure?) -> Void) {
        guard isAdapterOn else { return completed(.notReady) }
        guard let button = button(id) else { return completed(.doesNotExist) }
        let life = life
        opening[id] = { [self] failure in
            opening[id] = nil
            completed(life == self.life ? failure : .serviceGone)
        }
        guard button.isInReach else {
            return whenAwake(clock.now + .seconds(5)) { [self] in opening[id]?(.timedOut) }
        }
        link(id)
        finishOpening(button)
    }

    private func finishOpening(_ button: Button) {
        let life = life
        whenAwake(clock.now + milliseconds(100...900)) { [self] in
            guard let answer = opening[button.id] else { return }
            guard life == self.life, isWorking(), button.isInReach, isConnected(button) else {
                return answer(.timedOut)
            }
            world.note(device.name, "the serial port of button \(button.number) is open")
            streams.insert(button.id)
            answer(nil)
        }
    }

    /// The kernel tells the end of a port, whatever bluetoothd does.
    private func closeStream(_ id: DeviceIdentifier) {
        if streams.remove(id) != nil { tell(.streamClosed(device: id, .serialPort)) }
    }

    private func send(_ bytes: [UInt8], of button: Button) -> Bool {
        guard hears(button) else { return false }
        tell(.streamBytes(device: button.id, .serialPort, bytes, at: clock.now), edge: button.edge)
        return true
    }

    private func tell(_ report: BluetoothReport, edge: Instant? = nil) {
        guard let process = device.process else { return }
        lastBytes = max(lastBytes + .nanoseconds(1), clock.now + milliseconds(1...8))
        clock.at(lastBytes) {
            if let edge { process.heard(edge) }
            process.accessories.handle(.bluetooth(report))
        }
    }
}
