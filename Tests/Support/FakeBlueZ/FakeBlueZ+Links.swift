// Advertisements heard, links made and broken, services resolved.
import DBus
import Logging
import MonotonicTime
import Reactor

extension FakeBlueZ {
    nonisolated func devicePath(_ peripheral: Peripheral) -> DBusObjectPath {
        let text = peripheral.address.split(separator: ":").joined(separator: "_")
        return (try? adapterPath.appending("dev_" + text)) ?? adapterPath
    }

    func path(_ name: String) -> DBusObjectPath? { peripherals[name].map { devicePath($0) } }

    // MARK: Hearing

    /// What the adapter does about each button that advertises now.
    func hearAll() {
        for name in peripherals.keys.sorted() { hear(name) }
    }

    /// Hears everybody over and over, as a radio does, now a little stronger and now a little weaker.
    func hearAgain() {
        hearingTimer?.cancel()
        guard let pause = configuration.hearingPause else { return }
        hearingTimer = loop.schedule(after: pause) { [weak self] in
            self?.assumeIsolated { fake in
                guard !fake.discoverers.isEmpty else { return }
                _ = Task { await fake.hearStrengths() }
                fake.hearAgain()
            }
        }
    }

    private func hearStrengths() async {
        strengthOffset = -strengthOffset
        for (name, peripheral) in peripherals.sorted(by: { $0.key < $1.key })
        where peripheral.isAdvertising && !discoverers.isEmpty && isPowered && hasAdapter {
            guard records[name]?.isExported == true else {
                hear(name)
                continue
            }
            try? await connection?.setProperties(
                ["RSSI": .int16(-51 + strengthOffset)], of: "org.bluez.Device1", at: devicePath(peripheral))
        }
    }

    /// An advertisement was heard: the device becomes known to a discovery, or is connected.
    func hear(_ name: String) {
        guard connection != nil, hasAdapter, isPowered, let peripheral = peripherals[name], peripheral.isAdvertising,
            let record = records[name]
        else { return }
        if !discoverers.isEmpty, !record.isExported {
            Task { await exportDevice(name) }
        }
        if isAutoConnected(name) || record.isConnecting { scheduleLink(name) }
    }

    /// Both a registered profile with one of its services and trust are needed, as measured with BlueZ 5.66.
    private func isAutoConnected(_ name: String) -> Bool {
        guard let record = records[name], let peripheral = peripherals[name], record.isPermanent, record.isTrusted,
            !record.isAutoConnectOff
        else { return false }
        return applications.contains { !$0.services.isDisjoint(with: peripheral.services) }
    }

    private func scheduleLink(_ name: String) {
        let number = records[name]?.linkNumber
        loop.schedule(after: configuration.linkDelay) { [weak self] in
            self?.assumeIsolated { fake in
                guard fake.records[name]?.linkNumber == number else { return }
                _ = Task { await fake.link(name) }
            }
        }
    }

    private func link(_ name: String) async {
        guard connection != nil, hasAdapter, isPowered, peripherals[name]?.isAdvertising == true,
            let record = records[name], record.isExported, isAutoConnected(name) || record.isConnecting
        else { return }
        peripherals[name]?.isLinked = true
        records[name]?.linkNumber += 1
        records[name]?.isPermanent = true
        await change(name, ["Connected": .boolean(true)])
        if let left = peripherals[name]?.linksToAbort, left > 0 {
            peripherals[name]?.linksToAbort = left - 1
            await breakLink(name, advertisesAgain: true)
            return
        }
        // BlueZ 5.66 answers `Connect` with the link; the services follow.
        endConnecting(name)
        let number = records[name]?.linkNumber
        loop.schedule(after: configuration.resolveDelay) { [weak self] in
            self?.assumeIsolated { fake in
                guard fake.records[name]?.linkNumber == number else { return }
                _ = Task { await fake.resolve(name) }
            }
        }
    }

    private func resolve(_ name: String) async {
        guard peripherals[name]?.isLinked == true, let peripheral = peripherals[name] else { return }
        let number = records[name]?.linkNumber
        if configuration.objectsLate == nil { await exportAttributes(name) }
        await addBattery(name)
        guard records[name]?.linkNumber == number else { return }
        records[name]?.areServicesResolved = true
        await change(name, ["ServicesResolved": .boolean(true), "UUIDs": .strings(peripheral.services.sorted())])
        if let late = configuration.objectsLate {
            loop.schedule(after: late) { [weak self] in
                self?.assumeIsolated { fake in
                    guard fake.records[name]?.linkNumber == number else { return }
                    _ = Task { await fake.exportAttributes(name) }
                }
            }
        }
    }

    /// Ends a link, whoever wanted it to end.
    func breakLink(_ name: String, advertisesAgain: Bool) async {
        if !advertisesAgain { peripherals[name]?.advertises = false }
        guard peripherals[name]?.isLinked == true else { return }
        peripherals[name]?.isLinked = false
        hangUp(name)
        records[name]?.linkNumber += 1
        records[name]?.areServicesResolved = false
        endConnecting(name)
        await change(name, ["ServicesResolved": .boolean(false)])
        await change(name, ["Connected": .boolean(false)])
        await removeBattery(name)
        hear(name)
    }

    /// ServicesResolved true → false → true, with the objects removed and added in between.
    func flap(_ name: String) async {
        guard peripherals[name]?.isLinked == true else { return }
        let number = records[name]?.linkNumber
        await change(name, ["ServicesResolved": .boolean(false)])
        await unexportAttributes(name)
        loop.schedule(after: configuration.resolveDelay) { [weak self] in
            self?.assumeIsolated { fake in
                guard fake.records[name]?.linkNumber == number else { return }
                _ = Task { await fake.resolve(name) }
            }
        }
    }

    // MARK: What Device1 is asked

    func connect(_ name: String) async throws {
        // What 5.66 says, where NotReady would be expected.
        guard isPowered else { throw BlueZReply.failed("Input/output error") }
        guard let peripheral = peripherals[name], let record = records[name] else { throw BlueZReply.doesNotExist }
        guard !record.isConnecting else { throw BlueZReply.inProgress }
        if peripheral.isLinked { return }
        records[name]?.isConnecting = true
        records[name]?.isPermanent = true
        records[name]?.isAutoConnectOff = false
        temporaryTimers.removeValue(forKey: name)?.cancel()
        if peripheral.isAdvertising { scheduleLink(name) }
        let timer = loop.schedule(after: configuration.connectTimeout) { [weak self] in
            self?.assumeIsolated { $0.endConnecting(name) }
        }
        await withCheckedContinuation { connecting[name] = $0 }
        timer.cancel()
        if peripherals[name]?.isLinked == true { return }
        throw BlueZReply.failed("le-connection-abort-by-local")
    }

    func disconnect(_ name: String) async throws {
        guard let record = records[name], peripherals[name]?.isLinked == true || record.isConnecting else {
            throw BlueZReply.notConnected
        }
        if !record.isTrusted { records[name]?.isAutoConnectOff = true }
        await breakLink(name, advertisesAgain: true)
        endConnecting(name)
    }

    /// Lets a waiting `Connect` answer.
    func endConnecting(_ name: String) {
        records[name]?.isConnecting = false
        connecting.removeValue(forKey: name)?.resume()
    }

    func pair(_ name: String, for sender: String) async throws {
        guard records[name]?.isPaired == false else { throw BlueZReply.alreadyExists }
        guard agents[sender] != nil else {
            throw DBusErrorReply("org.bluez.Error.AuthenticationFailed", "Authentication Failed")
        }
        try await connect(name)
        let behaviour = peripherals[name]?.pairing ?? .succeeds
        switch behaviour {
        case .succeeds, .isNotAnswered:
            records[name]?.isPaired = true
            await change(name, ["Paired": .boolean(true), "Bonded": .boolean(true)])
        case .hangs: break
        case .hangsUp: await breakLink(name, advertisesAgain: false)
        case .vanishes: if let path = path(name) { try? await removeDevice(path) }
        }
        guard behaviour != .succeeds else { return }
        // Until `CancelPairing`, or the end of the daemon.
        await withCheckedContinuation { unansweredPairs[name, default: []].append($0) }
        throw DBusErrorReply("org.bluez.Error.AuthenticationCanceled", "Authentication Canceled")
    }

    func cancelPairing(_ name: String) throws {
        cancelledPairings += 1
        guard unansweredPairs[name] != nil else { throw BlueZReply.doesNotExist }
        // One that hangs does not answer this way either.
        if peripherals[name]?.pairing == .succeeds { endPairing(name) }
    }

    func endPairing(_ name: String) {
        for continuation in unansweredPairs.removeValue(forKey: name) ?? [] { continuation.resume() }
    }

    func trust(_ name: String, _ isTrusted: Bool) {
        records[name]?.isTrusted = isTrusted
        if isTrusted { records[name]?.isAutoConnectOff = false }
        // The new value is signalled first.
        loop.schedule(at: .now) { [weak self] in self?.assumeIsolated { $0.hear(name) } }
    }

    func removeDevice(_ path: DBusObjectPath) async throws {
        guard let name = peripherals.values.first(where: { devicePath($0) == path })?.name,
            records[name]?.isExported == true
        else { throw BlueZReply.doesNotExist }
        peripherals[name]?.isLinked = false
        hangUp(name)
        await unexportDevice(name)
        let number = (records[name]?.linkNumber ?? 0) + 1
        records[name] = Record()
        records[name]?.linkNumber = number
        hear(name)
    }

    // MARK: Properties

    func change(_ name: String, _ properties: [String: DBusValue]) async {
        guard let path = path(name), records[name]?.isExported == true else { return }
        do {
            try await connection?.setProperties(properties, of: "org.bluez.Device1", at: path)
        } catch {
            logger.error("device property", metadata: ["reason": "\(error)"])
        }
    }
}
