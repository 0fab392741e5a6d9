// How each accessory is doing, in the words that people are shown.
import BlueZ

extension AccessoriesStateMachine {
    mutating func changes() -> [Action] { order.flatMap { changes(of: $0) } }

    mutating func changes(of id: AccessoryID) -> [Action] {
        guard let status = status(of: id), status != accessories[id]?.reported else { return [] }
        accessories[id]?.reported = status
        return [.event(.changed(status))]
    }

    func status(of id: AccessoryID) -> AccessoryStatus? {
        guard let accessory = accessories[id] else { return nil }
        let link = accessory.link
        let configuration = accessory.configuration
        let profile =
            accessory.controls?.profile ?? link.profile ?? configuration.profileID.flatMap { library[$0] }
        let localName = accessory.nodes.min().flatMap { localDevices[$0]?.name }
        let isHeard =
            accessory.isLocal
            ? isLocalReady(accessory)
            : link.isReady && !isCarrierLost(id) && accessory.controls?.isCertain != false
        return AccessoryStatus(
            id: id, name: link.lastName ?? localName ?? configuration.name?.text ?? id.text,
            address: link.lastAddress ?? configuration.address ?? "", profileID: profile?.id,
            profileTitle: profile?.title, isConnected: accessory.isLocal || link.device?.isReachable ?? false,
            transport: profile?.transport, isBonded: link.device?.isBonded ?? false,
            actions: accessory.controls?.actions ?? [:], isReady: isHeard,
            battery: profile?.battery == .text ? accessory.battery : link.device?.battery,
            isHeld: held.sources.contains { $0.accessory == id }, problem: problem(accessory, profile))
    }

    /// Its presses come through a service that hangs.
    private func isCarrierLost(_ id: AccessoryID) -> Bool {
        carrier(of: id).flatMap { carriers[$0] }?.isLost ?? false
    }

    private func isLocalReady(_ accessory: FleetAccessory) -> Bool {
        accessory.controls != nil && accessory.localProblem == nil && !isLocalBarred(accessory)
    }

    /// Its keys came by Bluetooth, and it is not bonded though it has to be.
    func isLocalBarred(_ accessory: FleetAccessory) -> Bool {
        accessory.nodes.contains { localDevices[$0]?.address != nil }
            && isBarred(accessory.link.device, accessory.configuration)
    }

    private func problem(_ accessory: FleetAccessory, _ profile: AccessoryProfile?) -> String? {
        if accessory.isLocal {
            if isLocalBarred(accessory) { return Self.unbondedProblem }
            return accessory.localProblem ?? accessory.controls?.refusedGesture
        }
        let configuration = accessory.configuration
        let isWireless = configuration.address != nil || configuration.name != nil
        if isWireless {
            switch radio {
            case .noService: return "the Bluetooth service is not running: systemctl start bluetooth"
            case .off:
                return
                    "no Bluetooth adapter is on: plug one in, or 'rfkill unblock bluetooth', 'bluetoothctl power on'"
            case .on: break
            }
        }
        if isCarrierLost(configuration.id), let carrier = carrier(of: configuration.id) { return carrier.problem }
        if let device = accessory.link.device?.id, let rate = floods[device] { return Self.floodProblem(rate) }
        if let problem = accessory.link.problem { return problem }
        if case .passive = accessory.kind { return missing(accessory, profile, isWireless: isWireless) }
        if accessory.link.isReady, accessory.controls?.isHeldFromBefore == true {
            return "it is held since before it was connected: let it go, and press it anew"
        }
        return accessory.controls?.refusedGesture ?? accessory.note
    }

    /// Its presses come from a local device, and there is none.
    private func missing(_ accessory: FleetAccessory, _ profile: AccessoryProfile?, isWireless: Bool) -> String {
        if accessory.configuration.id == .mediaPlayer {
            return "no media player is registered: write media-player = true in [accessories]"
        }
        if let id = accessory.configuration.profileID, library[id] == nil {
            return "there is no profile \"\(id)\": correct the name, or put its file into the profiles directory"
        }
        let what = profile?.transport == .serial ? "serial port" : "input device"
        if isWireless, accessory.link.device?.isReachable != true {
            return "asleep or out of range: press its button"
        }
        return "no \(what) of it is there: plug it in, and give it to pttd by a udev rule (TAG+=\"pttd\")"
    }
}
