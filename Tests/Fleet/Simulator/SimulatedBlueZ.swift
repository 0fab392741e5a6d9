// bluetoothd, the adapter and the radio of one device, with the behaviours that docs/bluez.md tells of.
import BlueZ
import MonotonicTime
import TestSupport

@testable import Accessories

/// BlueZ as one pttd sees it. It outlives pttd.
final class SimulatedBlueZ {
    private unowned let device: Device
    private var world: World { device.world }
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
    /// What bluetoothd was asked and has not looked at yet.
    private var unanswered: [Int: (BluetoothFailure?) -> Void] = [:]
    private var lastCommand = 0

    init(device: Device) {
        self.device = device
        random = device.world.random("bluez \(device.number)")
        for button in device.buttons { devices[button.id] = button.facts }
    }

    var isHung: Bool { world.now < hungUntil }

    private func isWorking() -> Bool { isServiceUp && isAdapterOn }

    private func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &random))
    }

    // MARK: To pttd

    /// Tells pttd, in order; a halted bluetoothd tells it afterwards, unless it has ended by then.
    ///
    /// - Parameter edge: When the finger came down that the event tells of.
    private func report(_ report: BluetoothReport, edge: Instant? = nil, isRead: Bool = false) {
        guard let process = device.process else { return }
        lastReport = max(max(lastReport, hungUntil) + .nanoseconds(1), world.now + milliseconds(1...8))
        let life = life
        whenAwake(lastReport) { [self] in
            guard life == self.life else { return }
            if let edge { process.heard(edge, isRead: isRead) }
            process.accessories.handle(.bluetooth(report))
        }
    }

    /// Then, or when it goes on: it may have been halted once more meanwhile.
    private func whenAwake(_ time: Instant, _ work: @escaping () -> Void) {
        world.at(time) { [self] in if isHung { whenAwake(hungUntil, work) } else { work() } }
    }

    private func changed(_ id: DeviceIdentifier) { if let facts = devices[id] { report(.device(facts)) } }

    /// pttd has connected to the bus.
    func clientCame() {
        (registered, notifying) = ([], [])
        lastReport = world.now
        guard isServiceUp else { return }
        tellAll()
    }

    /// pttd is gone: what it asked for ends with it.
    func clientLeft() { (registered, notifying) = ([], []) }

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
        (hungUntil, lastReport) = (.zero, world.now)
        for button in device.buttons { unlink(button.id, tells: false) }
        (registered, notifying) = ([], [])
        let calls = unanswered.sorted { $0.key < $1.key }.map(\.value)
        unanswered = [:]
        world.after(.milliseconds(1)) { for completed in calls { completed(.serviceGone) } }
        report(.radio(.noService))
        world.after(time) { [self] in
            world.note(device.name, "bluetoothd is there again")
            isServiceUp = true
            tellAll()
            for button in device.buttons { advertise(button) }
        }
    }

    func hang(for time: Duration) {
        guard isServiceUp else { return }
        world.note(device.name, "bluetoothd is halted")
        hungUntil = max(hungUntil, world.now + time)
        for button in device.buttons { button.isLost() }
    }

    func switchOff(for time: Duration) {
        guard isAdapterOn else { return }
        world.note(device.name, "the adapter is off")
        isAdapterOn = false
        for button in device.buttons { unlink(button.id, tells: isServiceUp) }
        if isServiceUp { report(.radio(.off)) }
        // It is bluetoothd that powers it on again.
        whenAwake(world.now + time) { [self] in
            world.note(device.name, "the adapter is on")
            isAdapterOn = true
            guard isServiceUp else { return }
            report(.radio(.on))
            for button in device.buttons { advertise(button) }
        }
    }

    /// A button is out of reach; BlueZ notices later.
    func lose(_ button: Button, for time: Duration, noticedAfter: Duration) {
        guard button.isInReach else { return }
        world.note(device.name, "button \(button.number) is out of reach")
        button.isInReach = false
        let life = life
        world.after(noticedAfter) { [self] in
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
        isWorking() && button.isInReach && isConnected(button) && notifying.contains(button.characteristic)
    }

    private func link(_ id: DeviceIdentifier) {
        guard devices[id]?.isConnected == false, !linking.contains(id) else { return }
        linking.insert(id)
        let life = life
        world.after(milliseconds(30...400)) { [self] in
            linking.remove(id)
            guard life == self.life, isWorking(), let button = self.button(id), button.isInReach else { return }
            world.note(device.name, "button \(button.number) is connected")
            devices[id]?.isConnected = true
            changed(id)
            world.after(milliseconds(20...300)) { [self] in
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
        if tells { changed(id) }
    }

    private func button(_ id: DeviceIdentifier) -> Button? { device.buttons.first { $0.id == id } }

    /// It can be connected now: BlueZ does so when it is trusted and one of its services is registered.
    func advertise(_ button: Button) {
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
        guard hears(button), world.now >= button.mutedUntil else { return false }
        report(.value(characteristic: button.characteristic, bytes: bytes, at: world.now), edge: button.edge)
        return true
    }

    // MARK: Commands

    /// When BlueZ has answered for certain.
    func perform(_ command: BluetoothCommand, completed: @escaping (BluetoothFailure?) -> Void) {
        guard isServiceUp else { return world.after(milliseconds(2...60)) { completed(.serviceGone) } }
        let number = lastCommand
        lastCommand += 1
        unanswered[number] = completed
        let delay = milliseconds(2...60)
        whenAwake(max(world.now + delay, hungUntil)) { [self] in
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
                world.after(.seconds(20)) { completed(.timedOut) }
                return
            }
            link(id)
            world.after(.milliseconds(500)) { completed(nil) }
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
                isRead: true)
            completed(nil)
        case .probe, .cancelPairing: completed(nil)
        case .autoConnect(let services):
            registered = services
            completed(nil)
            report(.autoConnect(isArmed: true))
            for button in device.buttons { advertise(button) }
        case .startDiscovery, .stopDiscovery, .write, .writeStream, .setLink, .closeStream: completed(nil)
        case .openStream: completed(.notSupported)
        case .remove(let id):
            devices[id] = nil
            report(.deviceRemoved(id))
            completed(nil)
        }
    }
}
