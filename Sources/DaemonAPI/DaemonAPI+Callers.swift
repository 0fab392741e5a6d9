// Callers that hold something until they leave the bus: the talk key, a transmission, a registration, a scan, a test.
import DBus
import Logging
import PTTBus
import PushToTalkCore

/// A caller whose leaving of the bus matters.
struct WatchedCaller {
    /// Why it matters.
    enum Use: Hashable {
        /// It holds the talk key, or is about to.
        case talkKey
        /// It began a transmission by request, or is about to.
        case transmission
        /// It is a program with a channel manager, or is about to be.
        case application
        /// It scans for accessories.
        case scan
        /// It adds the device of this address.
        case adding(String)
        /// It tries the accessory of this id.
        case test(String)
        /// It learns a button.
        case learning
        /// It browses channels nearby.
        case browse
        /// It joins a channel nearby, which may wait for somebody's answer.
        case joiningNearby
    }

    var uses: Set<Use>
    /// nil while it is being set up.
    var watch: DBusNameWatch?
    /// Later calls of the same caller, which wait for that.
    var waiting: [CheckedContinuation<Void, Never>] = []
}

extension DaemonAPI {
    /// Notes that `caller` is about to hold something; without a pause when it is watched already.
    ///
    /// Holding comes after this, and `isHolding` has to be looked at again when it is done: the caller may have left meanwhile.
    func hold(_ use: WatchedCaller.Use, for caller: String) async throws {
        await settled(caller)
        if callers[caller] != nil {
            callers[caller]?.uses.insert(use)
            return
        }
        guard callers.count < PTTBusLimits.watchedCallers else {
            throw DBusErrorReply.limitsExceeded("\(PTTBusLimits.watchedCallers) callers hold something; try again")
        }
        callers[caller] = WatchedCaller(uses: [use])
        let watch: DBusNameWatch
        do {
            watch = try await bus.watchName(caller) { [weak self] owner in
                guard owner == nil else { return }
                self?.assumeIsolated { $0.gone(caller) }
            }
        } catch {
            for call in callers.removeValue(forKey: caller)?.waiting ?? [] { call.resume() }
            throw error
        }
        // A caller may be gone before its watch was there; then nobody would ever let go for it.
        let isConnected = await bus.uniqueName != nil
        guard isConnected, callers[caller] != nil else {
            for call in callers.removeValue(forKey: caller)?.waiting ?? [] { call.resume() }
            await bus.unwatchName(watch)
            throw Self.callerLeft
        }
        callers[caller]?.watch = watch
        // They run after what this call does now.
        for call in callers[caller]?.waiting ?? [] { call.resume() }
        callers[caller]?.waiting = []
    }

    /// Waits until an earlier call of `caller` has its watch, so that calls take effect in the order they came.
    func settled(_ caller: String) async {
        while let entry = callers[caller], entry.watch == nil {
            await withCheckedContinuation { callers[caller]?.waiting.append($0) }
        }
    }

    static var callerLeft: PTChannelError { PTChannelError(.unknown, explanation: "the caller has left the bus") }

    /// Whether `caller` is on the bus and its `use` has not been dropped.
    func isHolding(_ use: WatchedCaller.Use, _ caller: String) -> Bool { callers[caller]?.uses.contains(use) == true }

    /// How many callers hold this.
    func count(of use: WatchedCaller.Use) -> Int { callers.values.count { $0.uses.contains(use) } }

    /// `caller` does not hold this any more.
    func drop(_ use: WatchedCaller.Use, for caller: String) async {
        guard callers[caller]?.uses.remove(use) != nil else { return }
        guard let entry = callers[caller], entry.uses.isEmpty, let watch = entry.watch else { return }
        callers[caller] = nil
        await bus.unwatchName(watch)
    }

    private func gone(_ caller: String) {
        guard let entry = callers.removeValue(forKey: caller) else { return }
        for call in entry.waiting { call.resume() }
        let identity = identity(of: caller)
        // At once, so that nothing waits for a delegate that is not there.
        if entry.uses.contains(.application) { detach(caller) }
        Task { await left(identity, entry) }
    }

    private func left(_ caller: BusCaller, _ entry: WatchedCaller) async {
        // Before anything that waits for the bus: what it held is not held any more, and a push starts the program again.
        if let controls = try? controls {
            if entry.uses.contains(.talkKey), await controls.releaseTalkKey(caller: caller.busName) {
                logger.notice("talk key released: its holder left the bus", metadata: ["caller": "\(caller.busName)"])
            }
            if entry.uses.contains(.transmission) { await controls.requestingCallerLeft(caller) }
            if entry.uses.contains(.application) { await endRegistration(of: caller.busName) }
        }
        await leftAccessories(caller.busName, entry.uses)
        if let watch = entry.watch { await bus.unwatchName(watch) }
    }

    private func leftAccessories(_ caller: String, _ uses: Set<WatchedCaller.Use>) async {
        for use in uses {
            switch use {
            case .scan: await scannersChanged()
            case .adding(let address): await (try? accessoryControls)?.cancelAdding(address: address)
            case .test(let accessory): await testersChanged(of: accessory)
            case .learning: await learnerLeft(caller)
            case .browse: await browsersChanged()
            case .joiningNearby: await (try? nearbyControls)?.cancelJoining(by: BusCaller(busName: caller))
            case .talkKey, .transmission, .application: continue
            }
        }
    }

    /// A caller, with the program that it is registered as.
    func identity(of caller: String) -> BusCaller {
        guard let registration = applications[caller], registration.state == .registered else {
            return BusCaller(busName: caller)
        }
        return BusCaller(busName: caller, application: registration.application.id)
    }
}
